"""Replies that clients do not read are bounded for the whole broker."""

from __future__ import annotations

import pytest

from millrace.net.unread_replies import UnreadReplies
from millrace.testing import ManualClock

MIB = 1 << 20


class Reader:
    """A connection with replies in memory."""

    peer = "test"

    def __init__(self, unread: UnreadReplies, name: str) -> None:
        self.unread = unread
        self.name = name
        self.read = 0
        self.closed = False

    def bytes_read(self) -> int:
        return self.read

    def close(self, reason: str) -> None:
        self.closed = True
        self.unread.release(self)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def unread(clock: ManualClock) -> UnreadReplies:
    return UnreadReplies(10 * MIB, clock)


def readers(unread: UnreadReplies, *names: str) -> list[Reader]:
    return [Reader(unread, name) for name in names]


def test_bytes_are_counted_while_they_wait(unread: UnreadReplies) -> None:
    one, other = readers(unread, "one", "other")
    unread.hold(one, 3 * MIB)
    unread.hold(other, 4 * MIB)
    assert (unread.bytes_in_use, len(unread)) == (7 * MIB, 2)
    unread.hold(one, MIB)
    assert unread.bytes_in_use == 5 * MIB
    unread.release(one)
    unread.release(one)
    assert (unread.bytes_in_use, len(unread)) == (4 * MIB, 1)
    assert not one.closed
    assert not other.closed


def test_clients_that_do_not_read_are_closed_oldest_first(unread: UnreadReplies, clock: ManualClock) -> None:
    silent = readers(unread, *"abcdefghijklmnop")
    for reader in silent:
        unread.hold(reader, MIB)
        assert unread.bytes_in_use <= unread.limit
        clock.advance(10)
    closed = [reader.name for reader in silent if reader.closed]
    assert closed == list("abcdefghijklmnop")[: len(closed)]
    assert not silent[-1].closed


def test_a_client_that_reads_outlives_those_that_do_not(unread: UnreadReplies, clock: ManualClock) -> None:
    (honest,) = readers(unread, "honest")
    unread.hold(honest, MIB)
    for _ in range(100):
        (silent,) = readers(unread, "silent")
        unread.hold(silent, MIB)
        clock.advance(100)
        honest.read += 10_000
    assert not honest.closed


def test_the_slowest_reader_goes_first(unread: UnreadReplies, clock: ManualClock) -> None:
    slow, quick, late = readers(unread, "slow", "quick", "late")
    unread.hold(quick, 3 * MIB)
    unread.hold(slow, 4 * MIB)
    clock.advance(10_000)
    slow.read, quick.read = 100_000, 2_000_000
    unread.hold(late, 4 * MIB)
    assert [reader.closed for reader in (slow, quick, late)] == [True, False, False]


def test_a_reply_larger_than_the_limit_is_sent_if_it_is_alone(unread: UnreadReplies) -> None:
    (reader,) = readers(unread, "large")
    unread.hold(reader, 100 * MIB)
    assert not reader.closed


def test_a_negative_limit_is_none(clock: ManualClock) -> None:
    unread = UnreadReplies(-1, clock)
    many = readers(unread, *map(str, range(100)))
    for reader in many:
        unread.hold(reader, 100 * MIB)
    assert not any(reader.closed for reader in many)
