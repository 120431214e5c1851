"""Frames are cut from a connection's bytes, however these arrive."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest

from millrace.net.buffers import POOLED_BYTES, POOLED_FROM_BYTES, SCRATCH_BYTES, FrameBuffers
from millrace.net.frame_receiver import (
    AWAITED_BYTES,
    MAX_SILENCE_SECONDS,
    MAX_SLOW_SECONDS,
    MIN_BYTES_PER_SECOND,
    QUICK_PART_BYTES,
    SHORT_READ_BYTES,
    FrameReceiver,
)
from millrace.net.replies import Bytes, CloseConnection, FileRange
from millrace.testing import ManualClock

from .serving import MAX_FRAME, frame


class Arriving:
    """A transport that has received what a test says."""

    peer = "test"

    def __init__(self) -> None:
        self.waiting = bytearray()
        self.largest_read = 0
        self.awaited = 1
        self.closed_by_client = False

    def recv_into(self, view: memoryview) -> int:
        if not self.waiting:
            if self.closed_by_client:
                return 0
            raise BlockingIOError
        count = min(len(view), len(self.waiting))
        view[:count] = self.waiting[:count]
        del self.waiting[:count]
        self.largest_read = max(self.largest_read, count)
        return count

    def await_bytes(self, count: int) -> None:
        self.awaited = count

    def unread_bytes(self) -> int:
        return len(self.waiting)

    def send(self, data: Bytes, *, more: bool) -> int:
        raise NotImplementedError

    def send_buffers(self, buffers: object, *, more: bool) -> int:
        raise NotImplementedError

    def send_file(self, piece: FileRange, *, more: bool) -> int:
        raise NotImplementedError

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        raise NotImplementedError

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        raise NotImplementedError

    def unacknowledged_bytes(self) -> int:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class Receiving:
    """A receiver with its transport, memory and clock."""

    def __init__(self, limit: int = -1) -> None:
        self.transport = Arriving()
        self.buffers = FrameBuffers(limit)
        self.clock = ManualClock()
        self.resumed = 0
        self.receiver = self.another()

    def another(self) -> FrameReceiver:
        return FrameReceiver(
            self.transport,
            self.buffers,
            clock=self.clock,
            max_frame_bytes=MAX_FRAME,
            on_room=self._resume,
        )

    def _resume(self) -> None:
        self.resumed += 1

    def arrive(self, data: bytes) -> list[bytes]:
        """Let these bytes arrive, receive them all, and return the whole frames."""
        self.transport.waiting += data
        frames: list[bytes] = []
        while self.transport.waiting and not self.receiver.is_waiting:
            try:
                self.receiver.receive()
            except BlockingIOError:
                break
            while (whole := self.receiver.next_frame()) is not None:
                frames.append(bytes(whole))
            # Another connection uses the scratch buffer now.
            assert not self.receiver.keep_rest()
            self.buffers.scratch[:] = b"\xee" * SCRATCH_BYTES
        return frames


@pytest.fixture
def receiving() -> Receiving:
    return Receiving()


def content(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


def test_frames_are_found_however_they_are_cut(receiving: Receiving) -> None:
    payloads = [content(size) for size in (8, 9, 300, 70_000, 8, SCRATCH_BYTES + 5, 12)]
    stream = b"".join(map(frame, payloads))
    for seed in range(50):
        chance = random.Random(seed)
        found: list[bytes] = []
        position = 0
        while position < len(stream):
            size = chance.choice((1, 2, 3, 5, 50, 5000, 100_000))
            found += receiving.arrive(stream[position : position + size])
            position += size
        assert found == payloads, seed
    assert receiving.buffers.bytes_in_use == 0


@pytest.mark.parametrize(
    "size",
    [8, SCRATCH_BYTES - 4, SCRATCH_BYTES, SCRATCH_BYTES + 1, POOLED_BYTES, POOLED_BYTES + 1, MAX_FRAME],
)
def test_frames_of_every_size_arrive_whole(receiving: Receiving, size: int) -> None:
    payloads = [b"small one", content(size), b"small two", content(size), content(size)]
    assert receiving.arrive(b"".join(map(frame, payloads))) == payloads
    assert receiving.buffers.bytes_in_use == 0


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 7, MAX_FRAME + 1, 2**31 - 1])
def test_absurd_sizes_are_refused(receiving: Receiving, size: int) -> None:
    with pytest.raises(CloseConnection, match=r"socket\.request\.max\.bytes"):
        receiving.arrive(struct.pack(">i", size) + b"x" * 100)


def test_the_end_of_the_stream_is_an_error(receiving: Receiving) -> None:
    receiving.transport.closed_by_client = True
    with pytest.raises(ConnectionResetError, match="closed by the client"):
        receiving.receiver.receive()
    receiving.transport.closed_by_client = False
    receiving.arrive(frame(content(500))[:100])
    receiving.transport.closed_by_client = True
    with pytest.raises(ConnectionResetError, match="closed by the client"):
        receiving.receiver.receive()


# Reading ahead


def test_requests_that_wait_for_their_turn_count_as_memory_in_use(receiving: Receiving) -> None:
    receiving.transport.waiting += frame(b"request 1") * 1000
    receiver = receiving.receiver
    receiver.receive()
    assert receiver.next_frame() == b"request 1"
    assert receiver.keep_rest()
    assert receiving.buffers.bytes_in_use == 999 * 13
    receiving.buffers.scratch[:100] = bytes(100)
    for _ in range(999):
        assert receiver.next_frame() == b"request 1"
    assert receiver.next_frame() is None
    assert not receiver.keep_rest()
    assert receiving.buffers.bytes_in_use == 0


def test_the_beginning_of_another_large_frame_is_read_by_itself(receiving: Receiving) -> None:
    large = frame(content(POOLED_BYTES))
    assert receiving.arrive(large) == [large[4:]]
    receiving.transport.waiting += large
    receiving.receiver.receive()
    assert len(receiving.transport.waiting) == len(large) - SHORT_READ_BYTES
    assert receiving.receiver.next_frame() == large[4:]
    # Small frames are read many at a time again.
    receiving.receiver.keep_rest()
    receiving.arrive(frame(b"small one"))
    receiving.transport.largest_read = 0
    receiving.arrive(frame(b"small one") * 30_000)
    assert receiving.transport.largest_read == SCRATCH_BYTES


def test_little_is_read_while_memory_is_short() -> None:
    receiving = Receiving(limit=POOLED_BYTES)
    receiving.buffers.hold(POOLED_BYTES)
    receiving.arrive(frame(b"small one") * 20_000)
    # Behind at most three bytes of the frame before.
    assert receiving.transport.largest_read <= SHORT_READ_BYTES


# Waiting for more of a large frame at once

MISSING_BYTES = POOLED_BYTES - POOLED_FROM_BYTES


@pytest.mark.parametrize(
    ("part_bytes", "awaited"),
    [
        pytest.param(QUICK_PART_BYTES - 1, [1, 1], id="slow"),
        pytest.param(QUICK_PART_BYTES, [AWAITED_BYTES, AWAITED_BYTES], id="quick"),
        pytest.param(
            300_000, [AWAITED_BYTES, AWAITED_BYTES, MISSING_BYTES - 900_000], id="less missing than awaited"
        ),
        pytest.param(MISSING_BYTES - 1000, [1000, 1], id="nearly complete"),
        pytest.param(MISSING_BYTES, [1], id="complete"),
    ],
)
def test_more_is_awaited_of_a_large_frame_that_arrives_quickly(
    receiving: Receiving, part_bytes: int, awaited: list[int]
) -> None:
    large = content(POOLED_BYTES)
    whole: list[bytes] = []
    position = POOLED_BYTES - MISSING_BYTES
    receiving.arrive(struct.pack(">i", len(large)) + large[:position])
    for expected in awaited:
        whole += receiving.arrive(large[position : position + part_bytes])
        position += part_bytes
        assert receiving.transport.awaited == expected
    assert whole == ([large] if position >= POOLED_BYTES else [])


def test_every_packet_of_a_client_that_became_slow_is_reported(receiving: Receiving) -> None:
    receiving.arrive(frame(content(POOLED_BYTES))[:200_000])
    receiving.arrive(content(QUICK_PART_BYTES))
    assert receiving.transport.awaited > 1
    receiving.receiver.become_idle()
    assert receiving.transport.awaited == 1


# Memory


def test_a_frame_waits_for_memory_unread_and_resumes() -> None:
    receiving = Receiving(limit=2 * POOLED_BYTES)
    buffers = receiving.buffers
    other = buffers.begin(MAX_FRAME, memoryview(bytes(2 * POOLED_BYTES)))
    assert buffers.make_room(other, lambda: None), "one frame may exceed the limit"
    large = frame(content(POOLED_BYTES))
    assert receiving.arrive(large) == []
    assert receiving.receiver.is_waiting
    assert len(receiving.transport.waiting) >= len(large) - SHORT_READ_BYTES
    buffers.end(other)
    assert receiving.resumed == 1
    assert not receiving.receiver.is_waiting
    assert receiving.arrive(b"") == [large[4:]]
    assert buffers.bytes_in_use == 0


def test_closing_gives_all_memory_back(receiving: Receiving) -> None:
    unfinished, queued = receiving.another(), receiving.another()
    receiving.transport.waiting += frame(content(POOLED_BYTES))[:-1]
    unfinished.receive()
    assert unfinished.next_frame() is None
    receiving.transport.waiting += frame(b"request 1") * 10
    queued.receive()
    queued.next_frame()
    assert queued.keep_rest()
    assert receiving.buffers.bytes_in_use > 0
    unfinished.close()
    queued.close()
    assert receiving.buffers.bytes_in_use == 0


# Stalled clients


def begun(receiving: Receiving, size: int = 300_000, received: int = 10) -> FrameReceiver:
    receiving.arrive(frame(content(size))[: 4 + received])
    return receiving.receiver


def stalls(receiving: Receiving, silent_seconds: float = 0.0) -> bool:
    return receiving.receiver.stalls(receiving.clock.monotonic(), silent_seconds)


def test_a_client_that_falls_silent_within_a_frame_stalls(receiving: Receiving) -> None:
    assert not stalls(receiving, 1000)
    begun(receiving)
    assert not stalls(receiving, MAX_SILENCE_SECONDS)
    assert stalls(receiving, MAX_SILENCE_SECONDS + 0.1)


def test_a_client_whose_bytes_wait_for_the_broker_does_not_stall(receiving: Receiving) -> None:
    begun(receiving)
    receiving.transport.waiting += b"x"
    assert not stalls(receiving, 10)


def test_a_client_that_waits_for_memory_does_not_stall() -> None:
    receiving = Receiving(limit=POOLED_BYTES)
    other = receiving.buffers.begin(MAX_FRAME, memoryview(bytes(POOLED_BYTES)))
    receiving.buffers.make_room(other, lambda: None)
    receiving.arrive(frame(content(300_000)))
    assert receiving.receiver.is_waiting
    receiving.transport.waiting.clear()
    assert not stalls(receiving, 1000)


@pytest.mark.parametrize(("factor", "expected"), [(0.5, True), (1.5, False)])
def test_a_client_that_sends_slowly_for_long_stalls(
    receiving: Receiving, factor: float, *, expected: bool
) -> None:
    begun(receiving, POOLED_BYTES, 100_000)
    seconds = MAX_SLOW_SECONDS + 1
    for _ in range(10):
        receiving.clock.advance(int(seconds * 100))
        receiving.arrive(content(int(factor * MIN_BYTES_PER_SECOND * seconds / 10)))
    assert stalls(receiving) is expected


def test_a_client_that_sent_much_behind_a_pending_request_stalls(receiving: Receiving) -> None:
    receiving.transport.waiting += frame(b"pending.") + frame(content(50_000))
    receiving.receiver.receive()
    assert receiving.receiver.next_frame() == b"pending."
    assert receiving.receiver.keep_rest()
    assert not stalls(receiving, MAX_SILENCE_SECONDS)
    assert stalls(receiving, MAX_SILENCE_SECONDS + 0.1)


def test_a_client_that_sent_little_behind_a_pending_request_does_not_stall(receiving: Receiving) -> None:
    receiving.transport.waiting += frame(b"pending.") + frame(content(500))
    receiving.receiver.receive()
    assert receiving.receiver.next_frame() == b"pending."
    assert receiving.receiver.keep_rest()
    assert not stalls(receiving, 1000)
