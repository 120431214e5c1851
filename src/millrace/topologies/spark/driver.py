"""The driver: one long-running Spark job with a task for each worker.

Spark ships the code, places the tasks and starts a failed one again. The data does not pass through Spark: it
goes from worker to worker through the log.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from pyspark import SparkConf, SparkContext, SparkFiles

from millrace.topologies.runtime.jobs import Job
from millrace.topologies.runtime.progress import Progress
from millrace.topologies.runtime.worker import Worker

logger = logging.getLogger(__name__)

# A worker that dies is started again; its failures add up over its whole life.
TASK_FAILURES = 1000
WATCH_SECONDS = 0.05

SETTINGS = {
    "spark.task.maxFailures": str(TASK_FAILURES),
    "spark.speculation": "false",
    "spark.dynamicAllocation.enabled": "false",
    # A worker process belongs to one task, and ends with it.
    "spark.python.worker.reuse": "false",
    # A silent executor is noticed in seconds, not in minutes.
    "spark.network.timeout": "20s",
    "spark.network.timeoutInterval": "10s",
    "spark.executor.heartbeatInterval": "5s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# On one machine nothing has to be reached from outside.
LOCAL_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


class Driver:
    """Runs the workers of a topology on Spark, from the thread that calls it."""

    def __init__(self, job: Job, master: str | None, settings: Mapping[str, str] | None = None) -> None:
        workers = len(job.placement)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        conf = SparkConf().setAppName(f"topology {job.name}")
        conf.setMaster(master or f"local[{workers},{TASK_FAILURES}]")
        local = LOCAL_SETTINGS if master is None or master.startswith("local") else {}
        for name, value in {**SETTINGS, **local, **(settings or {})}.items():
            conf.set(name, value)
        self._job = job
        self._group = f"topology-{job.name}"
        self._context = SparkContext.getOrCreate(conf)
        self._context.setLogLevel("ERROR")
        self._context.addFile(job.path)
        self._failure: BaseException | None = None

    def run(self, *, once: bool = False) -> None:
        """Run until interrupted or, with `once`, until everything that was in the log is processed."""
        progress = Progress(self._job.plan(), self._job.bootstrap, self._job.client)
        running = threading.Thread(target=self._run_workers, name="spark-job", daemon=True)
        running.start()
        try:
            while running.is_alive():
                if once and progress.is_done():
                    break
                running.join(WATCH_SECONDS)
            if self._failure is not None:
                raise self._failure
        finally:
            self._context.cancelJobGroup(self._group)
            running.join()
            progress.close()
            self._context.stop()

    def _run_workers(self) -> None:
        job, workers = self._job, len(self._job.placement)

        def run(number: int, rows: Iterable[int]) -> Iterable[int]:
            shipped = replace(job, path=SparkFiles.get(Path(job.path).name))
            Worker(shipped.worker_job(number)).run()
            return ()

        self._context.setJobGroup(self._group, f"workers of topology {job.name}", interruptOnCancel=True)
        try:
            self._context.parallelize(range(workers), workers).mapPartitionsWithIndex(run).count()
        except Exception as error:
            if "cancelled" not in str(error):
                self._failure = error
