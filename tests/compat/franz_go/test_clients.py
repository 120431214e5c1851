"""franz-go, the Go client, in an application: a program makes each check and reports failures."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.testing import Broker, drop_answer

SECONDS = 60
# Members notice a change within milliseconds instead of seconds.
PROPERTIES = {
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "100",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
CHECKS = [
    "compression-gzip",
    "compression-lz4",
    "compression-none",
    "compression-snappy",
    "compression-zstd",
    "configs",
    "group",
    "idempotence",
    "next-generation-group",
    "offsets",
    "topics",
    "transactions",
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(PROPERTIES) as broker:
        yield broker


@pytest.mark.parametrize("check", CHECKS)
def test_client_works_as_with_apache_kafka(program: Path, broker: Broker, topic: str, check: str) -> None:
    run(program, check, broker.bootstrap, topic)


def test_records_are_written_once_although_responses_get_lost(
    program: Path, own_broker: Broker, topic: str
) -> None:
    own_broker.on("Produce", drop_answer(times=1))
    run(program, "idempotence", own_broker.bootstrap, topic)


def test_every_check_of_the_program_is_made(program: Path) -> None:
    assert run(program).split() == CHECKS


def run(program: Path, *arguments: str) -> str:
    """The program's output; fails with its message if a check fails."""
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
