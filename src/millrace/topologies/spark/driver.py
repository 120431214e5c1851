"""The driver: one long-running Spark job with a task for each worker.

Spark ships the code, places the tasks and starts a failed one again. The data does not pass through Spark: it
goes from worker to worker through the log.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pyspark import SparkConf, SparkContext, SparkFiles

from millrace.topologies.runtime.jobs import Job
from millrace.topologies.runtime.worker import Worker

logger = logging.getLogger(__name__)

# A worker that dies is started again; its failures add up over its whole life.
TASK_FAILURES = 1000
WATCH_SECONDS = 0.05
STOP_SECONDS = 10.0
# The folder of an unpacked archive on the machines of the workers.
CODE = "code"

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

    def __init__(self, job: Job, master: str | None) -> None:
        """`spark.*` settings of the topology are Spark's, such as the memory of its executors."""
        workers = len(job.placement)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        conf = SparkConf().setAppName(f"topology {job.name}")
        conf.setMaster(master or f"local[{workers},{TASK_FAILURES}]")
        is_local = master is None or master.startswith("local")
        # By default, a standalone cluster would give one topology all its cores.
        own = LOCAL_SETTINGS if is_local else {"spark.cores.max": str(workers)}
        for name, value in {**SETTINGS, **own, **_spark_settings(job)}.items():
            conf.set(name, value)
        self._job = job
        self._group = f"topology-{job.name}"
        self._context = SparkContext.getOrCreate(conf)
        self._context.setLogLevel("ERROR")
        if job.archive:
            self._context.addArchive(f"{job.archive}#{CODE}")
        else:
            self._context.addFile(job.path)
        self._failure: BaseException | None = None
        self._interrupted = threading.Event()

    @property
    def up(self) -> int:
        """The number of workers that run."""
        tracker = self._context.statusTracker()
        stages = [
            tracker.getStageInfo(stage)
            for job in tracker.getJobIdsForGroup(self._group)
            if (info := tracker.getJobInfo(job)) is not None
            for stage in info.stageIds
        ]
        return sum(stage.numActiveTasks for stage in stages if stage is not None)

    def interrupt(self) -> None:
        """Let `run` end soon. Any thread may call it."""
        self._interrupted.set()

    def run(self, *, once: bool = False) -> None:
        """Run until interrupted or, with `once`, until everything that was in the log is processed."""
        progress = self._job.progress()
        running = threading.Thread(target=self._run_workers, name="spark-job", daemon=True)
        running.start()
        try:
            while running.is_alive():
                if once and progress.is_done():
                    break
                if self._interrupted.is_set():
                    # Workers that were ordered to stop commit first.
                    running.join(STOP_SECONDS)
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
            directory = Path(SparkFiles.get(CODE) if job.archive else SparkFiles.getRootDirectory())
            # A topology opens the files that were shipped with it by their names.
            os.chdir(directory)
            shipped = replace(job, path=str(directory / Path(job.path).name))
            Worker(shipped.worker_job(number)).run()
            return ()

        self._context.setJobGroup(self._group, f"workers of topology {job.name}", interruptOnCancel=True)
        try:
            self._context.parallelize(range(workers), workers).mapPartitionsWithIndex(run).count()
        except Exception as error:
            if "cancelled" not in str(error):
                self._failure = error


def _spark_settings(job: Job) -> dict[str, str]:
    config = job.plan().config
    return {name: str(value) for name, value in config.items() if name.startswith("spark.")}
