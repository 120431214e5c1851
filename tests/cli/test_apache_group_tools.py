"""Our commands and Apache's tools print the same about groups and transactions."""

from collections.abc import Iterator

import pytest

from millrace.testing import Broker

from ..group_members import commit, members
from ..transaction_writer import TransactionWriter
from .apache import TOOLS, apache
from .conftest import Run

pytestmark = pytest.mark.java

GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
TRANSACTIONS = f"{TOOLS}.TransactionsCommand"


@pytest.fixture
def at_work(broker: Broker, produced: str) -> Iterator[list[str]]:
    """A group with a static member, one of the new protocol, and one without members."""
    names = [f"{kind}-of-{produced}" for kind in ("classic", "consumer", "empty")]
    commit(broker.bootstrap, names[0], {(produced, 0): 1})
    commit(broker.bootstrap, names[2], {(produced, 0): 1, (produced, 1): 0})
    with (
        members(broker.bootstrap, names[0], [produced], partitions=2, group_instance_id="one"),
        members(broker.bootstrap, names[1], [produced], partitions=2, group_protocol="consumer"),
    ):
        yield names


def same(run: Run, broker: Broker, *arguments: object, fails: bool = False) -> None:
    """Compare the lines; Apache's are in the order of a hash map, and its exit code is always 0."""
    ours = run("consumer-groups", *arguments, fails=fails).stdout
    theirs = apache(broker, GROUPS, *arguments)
    assert sorted(ours.splitlines()) == sorted(theirs.splitlines())


def test_groups_are_printed_the_same(run: Run, broker: Broker, at_work: list[str]) -> None:
    arguments = [word for name in at_work for word in ("--group", name)]
    same(run, broker, "--list", "--state", "--type")
    same(run, broker, "--describe", *arguments, "--offsets", "--verbose")
    same(run, broker, "--describe", *arguments, "--members", "--verbose")
    same(run, broker, "--describe", *arguments, "--state", "--verbose")


def test_resets_are_printed_the_same(run: Run, broker: Broker, produced: str, at_work: list[str]) -> None:
    arguments = [word for name in at_work for word in ("--group", name)]
    show = ("--reset-offsets", "--dry-run")
    same(run, broker, *show, *arguments, "--to-latest", "--topic", produced, fails=True)
    same(run, broker, *show, "--group", at_work[2], "--shift-by", 99, "--all-topics", "--export")
    later = ("--to-datetime", "2999-01-01T00:00:00.000")
    same(run, broker, *show, "--group", at_work[2], *later, "--topic", f"{produced}:1")


def test_transactions_are_printed_the_same(run: Run, broker: Broker, topic: str) -> None:
    run("topics", "--create", "--topic", topic)
    writer = TransactionWriter(broker.bootstrap, f"writer-of-{topic}")
    writer.write(topic, 0)
    for arguments in (("list",), ("describe-producers", "--topic", topic, "--partition", 0)):
        ours = run("transactions", *arguments).stdout
        assert sorted(ours.splitlines()) == sorted(apache(broker, TRANSACTIONS, *arguments).splitlines())
