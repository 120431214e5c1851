"""Memory for unfinished frames follows what has arrived, is bounded, and never ends in a deadlock."""

from functools import partial

import pytest

from millrace.net.buffers import (
    FIRST_BYTES,
    POOLED_BUFFERS,
    POOLED_BYTES,
    POOLED_FROM_BYTES,
    SMALL_FRAME_BYTES,
    FrameBuffers,
    PartialFrame,
)

LARGE = 64 * POOLED_BYTES


def begin(buffers: FrameBuffers, size: int, received: int) -> PartialFrame:
    return buffers.begin(size, memoryview(bytes(received)))


def fill(frame: PartialFrame) -> None:
    frame.filled = len(frame.buffer)


def never() -> None:
    raise AssertionError("it did not have to wait")


@pytest.mark.parametrize("size", [300, 3000, 300_000, LARGE])
@pytest.mark.parametrize("received", [0, 10, 200])
def test_a_claimed_size_takes_no_memory(size: int, received: int) -> None:
    buffers = FrameBuffers(-1)
    begin(buffers, size, received)
    assert buffers.bytes_in_use <= FIRST_BYTES


@pytest.mark.parametrize("received", [5_000, 50_000, 500_000])
def test_a_buffer_is_at_most_twice_what_has_arrived(received: int) -> None:
    buffers = FrameBuffers(-1)
    # The pool is fixed memory, and these frames come when it is used up.
    pooled = [begin(buffers, LARGE, POOLED_FROM_BYTES) for _ in range(POOLED_BUFFERS)]
    before = buffers.bytes_in_use
    assert before == len(pooled) * POOLED_BYTES
    frame = begin(buffers, LARGE, received)
    assert received <= buffers.bytes_in_use - before <= 2 * received
    fill(frame)
    assert buffers.make_room(frame, never)
    assert buffers.bytes_in_use - before <= 4 * received


def test_received_bytes_move_along_when_a_buffer_grows() -> None:
    buffers = FrameBuffers(-1)
    content = bytes(range(250)) * 20
    frame = buffers.begin(2 * POOLED_BYTES, memoryview(content))
    while len(frame.buffer) < frame.size:
        fill(frame)
        assert buffers.make_room(frame, never)
        assert bytes(frame.buffer[: len(content)]) == content
    buffers.end(frame)
    assert buffers.bytes_in_use == 0


def test_a_silent_client_keeps_only_what_has_arrived() -> None:
    buffers = FrameBuffers(-1)
    frame = begin(buffers, LARGE, POOLED_FROM_BYTES)
    assert buffers.bytes_in_use == POOLED_BYTES
    buffers.shrink(frame)
    assert buffers.bytes_in_use == POOLED_FROM_BYTES
    # Others get the pooled buffer, and it gets another when it sends again.
    taken = [begin(buffers, LARGE, POOLED_FROM_BYTES) for _ in range(POOLED_BUFFERS - 1)]
    assert buffers.make_room(frame, never)
    assert len(frame.buffer) == POOLED_BYTES
    for each in (frame, *taken):
        buffers.end(each)
    assert buffers.bytes_in_use == 0


def test_small_frames_never_wait() -> None:
    buffers = FrameBuffers(POOLED_BYTES)
    hogs = [begin(buffers, LARGE, POOLED_BYTES // 2) for _ in range(3)]
    for hog in hogs:
        buffers.make_room(hog, lambda: None)
    assert buffers.is_short
    small = begin(buffers, SMALL_FRAME_BYTES, 10)
    while len(small.buffer) < small.size:
        fill(small)
        assert buffers.make_room(small, never)


def full_of(count: int) -> tuple[FrameBuffers, list[PartialFrame]]:
    """Buffers without room for the growth of these frames, but for one that may exceed the limit."""
    buffers = FrameBuffers(count * POOLED_BYTES)
    frames = [begin(buffers, LARGE, POOLED_BYTES) for _ in range(count)]
    for frame in frames:
        buffers.shrink(frame)
    return buffers, frames


def test_memory_goes_to_the_frame_that_misses_the_least() -> None:
    buffers, (first, second) = full_of(2)
    assert buffers.make_room(first, never), "one frame may exceed the limit"
    resumed: list[str] = []
    huge, modest, other = (begin(buffers, size, 20_000) for size in (LARGE, 600_000, 700_000))
    for frame, name in ((huge, "huge"), (other, "other"), (modest, "modest")):
        assert not buffers.make_room(frame, partial(resumed.append, name))
    assert buffers.is_short
    buffers.end(first)
    assert resumed == ["modest", "other", "huge"]
    assert all(len(frame.buffer) > 20_000 for frame in (modest, other, huge))
    for frame in (second, huge, modest, other):
        buffers.end(frame)
    assert buffers.bytes_in_use == 0
    assert not buffers.is_short


def test_resuming_one_frame_leaves_the_others_waiting_when_memory_is_short_again() -> None:
    buffers, frames = full_of(4)
    assert buffers.make_room(frames[0], never)
    resumed: list[int] = []
    for number in (1, 2, 3):
        assert not buffers.make_room(frames[number], partial(resumed.append, number))
    buffers.end(frames[0])
    # The room of the first one, and the right to exceed the limit.
    assert resumed == [1, 2]
    assert buffers.is_short


def test_a_frame_whose_connection_closes_no_longer_waits() -> None:
    buffers, (first, second) = full_of(2)
    assert buffers.make_room(first, never)
    assert not buffers.make_room(second, never)
    buffers.end(second)
    buffers.end(first)
    assert buffers.bytes_in_use == 0
    assert not buffers.is_short


def test_frames_that_block_each_other_finish_one_after_the_other() -> None:
    buffers, frames = full_of(3)
    waiting = set(frames)
    growing: list[PartialFrame] = []
    for frame in frames:
        if buffers.make_room(frame, partial(growing.append, frame)):
            growing.append(frame)
    while waiting:
        frame = growing.pop()
        while len(frame.buffer) < frame.size:
            fill(frame)
            assert buffers.make_room(frame, never)
        buffers.end(frame)
        waiting.remove(frame)
    assert buffers.bytes_in_use == 0


def test_the_frame_beyond_the_limit_does_not_wait_for_one_that_misses_less() -> None:
    buffers, (large, other) = full_of(2)
    assert buffers.make_room(large, never)
    resumed: list[str] = []
    other.filled = other.size - 1
    assert not buffers.make_room(other, partial(resumed.append, "other"))
    fill(large)
    assert buffers.make_room(large, never)
    buffers.end(large)
    assert resumed == ["other"]


def test_short_memory_is_reported() -> None:
    reports: list[str] = []
    buffers = FrameBuffers(POOLED_BYTES, lambda: reports.append("short"))
    frame = begin(buffers, LARGE, POOLED_BYTES)
    assert not reports
    buffers.hold(1)
    assert reports == ["short"]
    buffers.release(1)
    other = begin(buffers, LARGE, 0)
    assert buffers.make_room(frame, never)
    reports.clear()
    assert not buffers.make_room(other, lambda: None)
    assert reports


def test_pooled_buffers_are_used_again_and_never_by_two_frames_at_once() -> None:
    buffers = FrameBuffers(-1)
    frames = [begin(buffers, LARGE, POOLED_FROM_BYTES) for _ in range(2 * POOLED_BUFFERS)]
    pooled = [frame.buffer for frame in frames if isinstance(frame.buffer, memoryview)]
    assert len(pooled) == POOLED_BUFFERS
    for number, frame in enumerate(frames):
        frame.buffer[:] = bytes([number]) * len(frame.buffer)
    for number, frame in enumerate(frames):
        assert bytes(frame.buffer) == bytes([number]) * len(frame.buffer)
        buffers.end(frame)
    assert buffers.bytes_in_use == 0
    again = [begin(buffers, LARGE, POOLED_FROM_BYTES).buffer for _ in range(POOLED_BUFFERS)]
    assert {id(buffer) for buffer in again} == {id(buffer) for buffer in pooled}


def test_a_negative_limit_is_none() -> None:
    buffers = FrameBuffers(-1)
    for _ in range(100):
        begin(buffers, LARGE, POOLED_BYTES)
    assert not buffers.is_short
