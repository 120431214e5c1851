"""A query that writes exactly once while its driver, executors, workers and broker are killed at random.

`python -m tests.pipelines.sink.exactly_once_chaos --seeds 20` plays twenty runs in one process; `--cluster`
uses executors in their own processes. A failing seed (`--first`) repeats the same kills.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.pipelines.sink.exactly_once import committed_batches
from millrace.testing import BrokerProcess

from ...reading import read_topic

DRIVER = Path(__file__).with_name("exactly_once_driver.py")
SOURCE, SINK, QUERY = "source", "sink", "copy"
PARTITIONS = 3
RECORDS = 1500
KEYS = 40
KILLS = 5
PATIENCE_SECONDS = 240.0
WATCH_SECONDS = 0.1

LOCAL, CLUSTER = "local[2]", "local-cluster[2,1,600]"
JOBS = ("map", "deduplicate")
BROKER_PROPERTIES = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}


class Driver:
    """The process of the driver and its children; a new driver replaces one that was killed."""

    def __init__(self, master: str, directory: Path) -> None:
        self.master = master
        self.log = directory / "driver.log"
        self._request = ""
        self._process: psutil.Popen | None = None
        self._all_processes: dict[int, psutil.Process] = {}

    def run(self, request: str) -> None:
        """Run the query of this request until the next one."""
        self._request = request
        if self._process is not None and self._process.poll() is None:
            self._send()
        self.ensure_running()

    def ensure_running(self) -> None:
        """Start the driver if it is not running."""
        if self._process is None or self._process.poll() is not None:
            with self.log.open("ab") as log:
                self._process = psutil.Popen(
                    [sys.executable, str(DRIVER), self.master], stdin=subprocess.PIPE, stdout=log, stderr=log
                )
            self._send()
        self._all_processes |= {process.pid: process for process in self.processes()}

    def _send(self) -> None:
        assert self._process is not None
        self._process.stdin.write(f"{self._request}\n".encode())
        self._process.stdin.flush()

    def processes(self) -> list[psutil.Process]:
        if self._process is None or self._process.poll() is not None:
            return []
        try:
            return [self._process, *self._process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def of_kind(self, kind: str) -> list[psutil.Process]:
        found = []
        for process in self.processes():
            try:
                words = " ".join(process.cmdline())
                daemon = "pyspark.daemon" in words
                is_worker = daemon and "pyspark.daemon" in " ".join(process.parent().cmdline())
            except (psutil.Error, AttributeError):
                continue
            kinds = {
                "worker": is_worker,
                "daemon": daemon and not is_worker,
                "executor": "CoarseGrainedExecutorBackend" in words,
                "driver": process is self._process or "SparkSubmit" in words,
            }
            if kinds[kind]:
                found.append(process)
        return found

    def kill(self, processes: list[psutil.Process]) -> None:
        for process in processes:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
            if isinstance(process, psutil.Popen):
                process.wait(PATIENCE_SECONDS)

    def let_go(self) -> list[psutil.Process]:
        """Release all processes; the next driver is a new one."""
        left = self.processes()
        self._process = None
        return left

    def end(self) -> None:
        """Kill all processes that are left."""
        self._all_processes |= {process.pid: process for process in self.processes()}
        self.kill(list(self._all_processes.values()))


class Run:
    """Plays one seed: writes records, lets the driver copy them, kills processes, and counts the copies."""

    def __init__(
        self, seed: int, driver: Driver, directory: Path, *, kills: int = KILLS, records: int = RECORDS
    ) -> None:
        self._choose = random.Random(seed)
        self.job = JOBS[seed % 2]
        self.killed: Counter[str] = Counter()
        self._kills = kills
        self._records = [(b"key-%d" % self._choose.randrange(KEYS), b"%06d" % n) for n in range(records)]
        self._directory = directory
        self._broker = BrokerProcess(BROKER_PROPERTIES, data_dir=directory / "broker")
        self._driver = driver
        self._frozen: list[tuple[list[psutil.Process], list[psutil.Process]]] = []

    def play(self) -> None:
        """Play the seed; raise AssertionError if records are missing or repeated."""
        with self._broker:
            try:
                self._fill()
                self._driver.run(f"{self._broker.bootstrap} {self._directory / 'checkpoint'} {self.job}")
                for _ in range(self._kills):
                    self._run_until_something_is_written()
                    self._keep_running(self._choose.uniform(0, 1.5))
                    self._kill_process()
                self._finish()
            except BaseException:
                print(self._driver.log.read_text(errors="replace")[-8000:])
                raise
            finally:
                self._thaw()

    def _fill(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap, "log_level": 0})
        for topic in admin.create_topics([NewTopic(name, PARTITIONS) for name in (SOURCE, SINK)]).values():
            topic.result()
        producer = Producer({"bootstrap.servers": self._broker.bootstrap, "log_level": 0})
        for key, value in self._records:
            producer.produce(SOURCE, value, key)
        assert producer.flush(PATIENCE_SECONDS) == 0

    def _keep_running(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        self._driver.ensure_running()
        while time.monotonic() < deadline:
            time.sleep(WATCH_SECONDS)
            self._driver.ensure_running()

    # Killing

    def _kill_process(self) -> None:
        kinds = ["worker", "broker", "broker"]
        if self._driver.master == CLUSTER:
            kinds += ["executor", "executor"]
        if not self.killed["driver"] and not self.killed["driver, leaving zombies"]:
            kinds += ["driver", "driver, leaving zombies"]
        kind = self._choose.choice(kinds)
        self.killed[kind] += 1
        if kind == "broker":
            self._broker.kill9()
            self._keep_running(self._choose.choice((0, 0, 2)))
            self._broker.start()
        elif kind == "driver":
            self._driver.kill(self._driver.of_kind("driver"))
        elif kind == "driver, leaving zombies":
            self._leave_zombies()
        else:
            running = self._driver.of_kind(kind)
            self._driver.kill([self._choose.choice(running)] if running else [])

    def _leave_zombies(self) -> None:
        """Freeze all processes; workers resume after the next driver has taken over."""
        workers = self._driver.of_kind("worker")
        others = [process for process in self._driver.let_go() if process not in workers]
        for process in others + workers:
            process.send_signal(signal.SIGSTOP)
        self._frozen.append((others, workers))

    def _thaw(self) -> None:
        for others, workers in self._frozen:
            # When their Spark is dead, the workers complete their transactions alone.
            self._driver.kill(others)
            for worker in workers:
                with suppress(psutil.NoSuchProcess):
                    worker.send_signal(signal.SIGCONT)
        self._frozen = []

    # Counting

    def _run_until_something_is_written(self) -> None:
        before = self._batches()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._batches() == before and len(list(self._written())) < len(self._records):
            assert time.monotonic() < deadline, f"nothing was written for {PATIENCE_SECONDS:.0f} s"
            self._keep_running(WATCH_SECONDS)
        self._thaw()

    def _batches(self) -> dict[int, int]:
        return committed_batches(self._broker.bootstrap, QUERY, PARTITIONS)

    def _finish(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (seen := len(list(self._written()))) < len(self._records):
            assert time.monotonic() < deadline, f"only {seen} of {len(self._records)} records were written"
            self._keep_running(0.5)
        self._thaw()
        # Leave time for processes that would write more.
        self._keep_running(1.0)
        self._check(list(self._written()))

    def _check(self, written: list[tuple[bytes, bytes]]) -> None:
        counts = Counter(written)
        repeated = {record: count for record, count in counts.items() if count > 1}
        missing = set(self._records) - counts.keys()
        unknown = counts.keys() - set(self._records)
        assert not repeated, f"{len(repeated)} records are repeated: {list(repeated)[:5]}"
        assert not missing, f"{len(missing)} records are missing: {sorted(missing)[:5]}"
        assert not unknown, f"{len(unknown)} records were never sent: {sorted(unknown)[:5]}"
        if self.job == "map":
            last: dict[bytes, bytes] = {}
            for key, value in written:
                assert value > last.get(key, b""), f"{key!r}: {value!r} comes after {last[key]!r}"
                last[key] = value

    def _written(self) -> Iterator[tuple[bytes, bytes]]:
        for message in read_topic(self._broker.bootstrap, SINK):
            yield message.key() or b"", message.value() or b""


@contextmanager
def chaos(master: str = LOCAL) -> Iterator[Callable[..., Run]]:
    """Yield a function that plays a seed; no process and no file is left behind."""
    directory = Path(tempfile.mkdtemp(prefix="millrace-chaos-"))
    driver = Driver(master, directory)

    def play(seed: int, **settings: int) -> Run:
        run = Run(seed, driver, directory / str(seed), **settings)
        run.play()
        return run

    try:
        yield play
    finally:
        driver.end()
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--cluster", action="store_true")
    chosen = parser.parse_args()
    # On SIGTERM it still kills the processes that it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    failed = 0
    with chaos(CLUSTER if chosen.cluster else LOCAL) as play:
        for seed in range(chosen.first, chosen.first + chosen.seeds):
            began = time.monotonic()
            try:
                run = play(seed)
            except Exception as error:
                failed += 1
                print(f"seed {seed}: {error!r}", flush=True)
                continue
            kills = ", ".join(f"{count} x {kind}" for kind, count in run.killed.items())
            seconds = time.monotonic() - began
            print(
                f"seed {seed}: {run.job}, {RECORDS} records once; killed {kills}; {seconds:.0f} s", flush=True
            )
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
