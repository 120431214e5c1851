"""A supervisor process over a broker, and the word count that tests submit to it."""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from millrace.services.secret_file import secret
from millrace.testing import Broker
from millrace.topologies.supervisor import submission
from millrace.topologies.supervisor.board import Board
from millrace.topologies.supervisor.keys import signing_key_file
from millrace.topologies.supervisor.records import Job, Status

from ...reading import read_topic
from ...waiting import until

WORD_COUNT = Path(__file__).parents[3] / "examples" / "topologies" / "wordcount.py"

SUPERVISOR = """
import sys
from pathlib import Path
from millrace.services.table import Settings
from millrace.topologies.supervisor.process import run_supervisor
run_supervisor(Settings(sys.argv[1], Path(sys.argv[2])), stops_drivers=False)
"""


class Platform:
    """A supervisor process over the broker, and a board to see what it does."""

    def __init__(self, broker: Broker, data_dir: Path) -> None:
        self.broker = broker
        self.data_dir = data_dir
        self.key = bytes.fromhex(secret(signing_key_file(data_dir)))
        self.board = Board(broker.bootstrap, self.key)
        self.board.catch_up()
        self.process = self.start()

    def start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", SUPERVISOR, self.broker.bootstrap, str(self.data_dir)]
        self.process = subprocess.Popen(command)
        return self.process

    def status(self, name: str) -> Status | None:
        while self.board.refresh(0.05):
            pass
        job = self.board.jobs.get(name)
        return None if job is None else self.board.status(job)

    def state(self, name: str) -> str | None:
        status = self.status(name)
        return None if status is None else status.state

    def workers_up(self, name: str) -> int:
        status = self.status(name)
        return 0 if status is None else status.workers_up

    def generation(self, name: str, state: str) -> int | None:
        """The generation that is in this state."""
        status = self.status(name)
        return status.generation if status is not None and status.state == state else None

    def job(self, name: str) -> Job:
        self.status(name)
        return self.board.jobs[name]

    def pid(self, name: str) -> int:
        status = self.status(name)
        assert status is not None
        return status.pid

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for status in self.board.statuses.values():
            if status.pid:
                try:
                    os.kill(status.pid, signal.SIGTERM)
                except ProcessLookupError:
                    continue
        self.board.close()


def topology_file(directory: Path, number: int) -> Path:
    """The example with topics of its own."""
    text = WORD_COUNT.read_text()
    text = text.replace('"sentences"', f'"lines-{number}"').replace('"counts"', f'"counts-{number}"')
    path = directory / "topology.py"
    path.write_text(text)
    return path


def write_sentences(broker: Broker, number: int, count: int, seed: int = 0) -> Counter[str]:
    producer, words = Producer({"bootstrap.servers": broker.bootstrap}), random.Random(seed)
    expected: Counter[str] = Counter()
    for _ in range(count):
        sentence = [f"word{words.randrange(50)}" for _ in range(8)]
        expected.update(sentence)
        producer.produce(f"lines-{number}", " ".join(sentence))
    assert producer.flush(30) == 0
    return expected


def counts_of(broker: Broker, number: int) -> tuple[dict[str, int], int]:
    """The newest count of each word, and the number of records."""
    records = [json.loads(message.value()) for message in read_topic(broker.bootstrap, f"counts-{number}")]
    newest: dict[str, int] = {}
    for record in records:
        newest[record["word"]] = max(newest.get(record["word"], 0), record["count"])
    return newest, len(records)


def kill(platform: Platform, name: str) -> None:
    """Kill a topology that runs, and wait until it is gone."""
    platform.status(name)
    if name in platform.board.jobs:
        submission.kill(platform.board, platform.job(name), 0)
        until(lambda: platform.status(name) is None and name not in platform.board.jobs)


@contextmanager
def submitted(
    platform: Platform,
    path: Path,
    name: str,
    *,
    workers: int = 2,
    master: str | None = None,
    files: Sequence[Path] = (),
) -> Iterator[Job]:
    package = submission.Package(path, name=name, config={"topology.workers": workers}, files=files)
    job = submission.submit(platform.board, package, spark=master is not None, master=master)
    try:
        yield job
    finally:
        kill(platform, name)
