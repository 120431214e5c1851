"""A broker that is killed again and again under load loses nothing it has acknowledged, and repeats nothing.

`MILLRACE_CRASH_SEEDS=100 pytest tests/crash` plays a hundred plans, from MILLRACE_CRASH_FIRST_SEED on. A
failing seed plays the same plan again; `make soak` plays many.
"""

import re
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.jars import JarsUnavailable, apache_kafka_classpath
from millrace.testing import BrokerProcess
from millrace.testing.apache_kafka import run_tool

from ..seeds import seeds
from .load import Ledger, Load, key_of
from .plan import BROKER_PROPERTIES, Plan
from .stored import Stored, check_segments, read_all, watermarks

TOPIC = "crashed"
# A fast machine writes many segments, and one argument of a command is limited to 128 KB.
FILES_PER_DUMP = 500
# Log lines that show an unexpected error in the broker.
BUGS = re.compile(r"a bug:|Traceback|Unhandled|Exception in callback|never retrieved|are missing")


@pytest.mark.parametrize("seed", seeds(usual=5, soak=100))
def test_nothing_acknowledged_is_lost_or_repeated(seed: int, tmp_path: Path) -> None:
    crash_and_check(Plan.of(seed), tmp_path)


@pytest.mark.java
def test_apaches_dump_tool_accepts_the_files_after_crashes(tmp_path: Path) -> None:
    try:
        apache_kafka_classpath()
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    crash_and_check(Plan.of(seed=5), tmp_path)
    files = [
        str(path)
        for path in sorted(tmp_path.glob(f"{TOPIC}-*/0*"))
        if path.suffix in {".log", ".index", ".timeindex"}
    ]
    assert files
    for start in range(0, len(files), FILES_PER_DUMP):
        names = ",".join(files[start : start + FILES_PER_DUMP])
        dump = run_tool("org.apache.kafka.tools.DumpLogSegments", ["--deep-iteration", "--files", names])
        assert dump.returncode == 0, dump.stdout + dump.stderr
        complaints = r"mismatch|not found|corrupt|isvalid: false|out of order"
        assert not re.search(complaints, dump.stdout + dump.stderr, re.IGNORECASE)


def crash_and_check(plan: Plan, data_dir: Path) -> None:
    with BrokerProcess(BROKER_PROPERTIES, data_dir=data_dir) as broker:
        try:
            crashes = Crashes(broker, plan)
            crashes.live_through()
            crashes.check()
            assert not BUGS.search(broker.log_file.read_text()), "the broker's log tells of a bug"
        except BaseException:
            print(f"{plan}\n{broker.log_file.read_text()[-20_000:]}")
            raise
    for partition in range(plan.partitions):
        assert check_segments(data_dir / f"{TOPIC}-{partition}")


class Crashes:
    """One broker through its starts and kills."""

    def __init__(self, broker: BrokerProcess, plan: Plan) -> None:
        self._broker = broker
        self._plan = plan
        self._create_topic()
        self._loads = [
            Load("idempotent", broker.bootstrap, TOPIC, plan, idempotent=True),
            Load("plain", broker.bootstrap, TOPIC, plan, idempotent=False),
        ]
        self._start_offsets = dict.fromkeys(range(plan.partitions), 0)

    def _create_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap})
        topic = NewTopic(TOPIC, self._plan.partitions, config=self._plan.topic_configs)
        admin.create_topics([topic])[TOPIC].result(30)

    def live_through(self) -> None:
        for load in self._loads:
            load.start()
        for life_seconds in self._plan.lives_seconds:
            time.sleep(life_seconds)
            self._broker.kill9()
            promised = [
                max(load.ledger.end_offset(partition) for load in self._loads)
                for partition in range(self._plan.partitions)
            ]
            self._broker.start()
            self._check_ends(promised)
        for load in self._loads:
            load.finish()

    def _check_ends(self, promised: list[int]) -> None:
        """A reopened log starts no earlier and ends no earlier than before."""
        found = watermarks(self._broker.bootstrap, TOPIC, self._plan.partitions)
        for partition, (start, end) in found.items():
            assert end >= promised[partition], f"partition {partition} ends before what was acknowledged"
            assert start >= self._start_offsets[partition], f"partition {partition} starts earlier again"
            self._start_offsets[partition] = start

    def check(self) -> None:
        idempotent, plain = (load.ledger for load in self._loads)
        assert not idempotent.failures + plain.failures
        for partition in range(self._plan.partitions):
            stored = read_all(self._broker.bootstrap, TOPIC, partition)
            if self._plan.compacts:
                _check_latest_of_every_key(stored, partition, [idempotent, plain])
                continue
            assert list(stored.values) == list(range(stored.start_offset, stored.end_offset))
            _check_acknowledged(stored, partition, [idempotent, plain])
            if not self._plan.expires:
                assert _values_of("idempotent", stored) == idempotent.sent[partition]
                assert list(dict.fromkeys(_values_of("plain", stored))) == plain.sent[partition]


def _check_acknowledged(stored: Stored, partition: int, ledgers: list[Ledger]) -> None:
    for ledger in ledgers:
        for offset, value in ledger.acknowledged[partition].items():
            if offset >= stored.start_offset:
                assert stored.values[offset] == value, f"{partition}@{offset} is lost"


def _check_latest_of_every_key(stored: Stored, partition: int, ledgers: list[Ledger]) -> None:
    acknowledged = {
        offset: value for ledger in ledgers for offset, value in ledger.acknowledged[partition].items()
    }
    for offset, value in stored.values.items():
        assert acknowledged.get(offset, value) == value, f"{partition}@{offset} holds another record"
    newest_kept = {key_of(value): offset for offset, value in stored.values.items()}
    newest_acknowledged = {key_of(value): offset for offset, value in sorted(acknowledged.items())}
    for key, offset in newest_acknowledged.items():
        assert newest_kept.get(key, -1) >= offset, f"{partition}@{offset}, the last of its key, is lost"


def _values_of(name: str, stored: Stored) -> list[bytes]:
    head = name.encode() + b" "
    return [value for value in stored.values.values() if value.startswith(head)]
