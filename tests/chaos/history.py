"""The events of a chaos run, and the checks on them."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

FOREVER = float("inf")


@dataclass
class Transaction:
    """Records of one transaction; `committed` is None while its outcome is unknown."""

    number: int
    values: list[str] = field(default_factory=list)
    committed: bool | None = None


@dataclass
class Ownership:
    """The time during which one member owned one partition."""

    group: str
    member: int
    partition: int
    since: float
    until: float = FOREVER


class History:
    """Filled from many threads; checked at the end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.acknowledged: dict[str, tuple[int, int]] = {}
        """Value to (partition, offset) of every record that was acknowledged outside transactions."""
        self.transactions: list[Transaction] = []
        self.read: dict[str, Counter[str]] = defaultdict(Counter)
        """By group: how often each value was delivered to a member."""
        self.ownerships: list[Ownership] = []

    def acknowledge(self, value: str, partition: int, offset: int) -> None:
        with self._lock:
            self.acknowledged[value] = (partition, offset)

    def begin(self, transaction: Transaction) -> None:
        with self._lock:
            self.transactions.append(transaction)

    def saw(self, group: str, values: list[str]) -> None:
        with self._lock:
            self.read[group].update(values)

    def own(self, ownership: Ownership) -> None:
        with self._lock:
            self.ownerships.append(ownership)


Stored = dict[int, list[tuple[int, str]]]
"""By partition: (offset, value) as a read_committed reader finds them at the end."""


def check(history: History, stored: Stored) -> None:
    """Raise AssertionError if an invariant is broken."""
    count = Counter(value for records in stored.values() for _, value in records)
    check_nothing_lost(history, stored, count)
    check_transactions(history, count)
    check_order(stored)
    check_groups_saw_everything(history, count)
    check_one_owner_at_a_time(history)


def check_nothing_lost(history: History, stored: Stored, count: Counter[str]) -> None:
    places = {value: (p, offset) for p, records in stored.items() for offset, value in records}
    for value, place in history.acknowledged.items():
        assert count[value] == 1, f"{value} was acknowledged and is there {count[value]} times"
        assert places[value] == place, f"{value} was acknowledged at {place} and is at {places[value]}"


def check_transactions(history: History, count: Counter[str]) -> None:
    for transaction in history.transactions:
        found = {value: count[value] for value in transaction.values}
        if transaction.committed:
            assert all(n == 1 for n in found.values()), f"committed, but found so often: {found}"
        elif transaction.committed is False:
            assert not any(found.values()), f"aborted, but found so often: {found}"
        else:
            assert len(set(found.values())) <= 1, f"only a part of a transaction is there: {found}"
            assert all(n <= 1 for n in found.values()), f"a transaction is there twice: {found}"


def check_order(stored: Stored) -> None:
    for partition, records in stored.items():
        assert [offset for offset, _ in records] == sorted({offset for offset, _ in records})
        last: dict[str, int] = {}
        for _, value in records:
            producer, _, number = value.rpartition(":")
            assert int(number) > last.get(producer, -1), f"partition {partition}: {value} is out of order"
            last[producer] = int(number)


def check_groups_saw_everything(history: History, count: Counter[str]) -> None:
    for group, read in history.read.items():
        missed = count.keys() - read.keys()
        assert not missed, f"{group} never got {sorted(missed)[:10]} and {len(missed)} in all"
        strangers = read.keys() - count.keys()
        assert not strangers, f"{group} got what was never committed: {sorted(strangers)[:10]}"


def check_one_owner_at_a_time(history: History) -> None:
    by_partition: dict[tuple[str, int], list[Ownership]] = defaultdict(list)
    for ownership in history.ownerships:
        by_partition[ownership.group, ownership.partition].append(ownership)
    for (group, partition), ownerships in by_partition.items():
        ownerships.sort(key=lambda ownership: ownership.since)
        for earlier, later in pairwise(ownerships):
            assert earlier.until <= later.since or earlier.member == later.member, (
                f"partition {partition} of {group} had two owners: {earlier} and {later}"
            )
