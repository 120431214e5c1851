"""Memory for unfinished frames: bounded, and never a dead end."""

from millrace.net.buffers import POOLED_BUFFERS, POOLED_BYTES, FrameBuffers

LARGE = 64 * POOLED_BYTES


def test_a_large_frame_goes_on_when_the_one_that_overdrew_is_done() -> None:
    buffers = FrameBuffers(4 * POOLED_BYTES)
    first, second = buffers.take(LARGE), buffers.take(LARGE)
    assert first is not None
    assert second is not None
    for _ in range(2):
        first = buffers.grow(first, LARGE)
        assert first is not None
    assert buffers.full
    overdrawn = buffers.grow(second, LARGE)
    assert overdrawn is not None
    assert buffers.grow(first, LARGE) is None
    woken: list[str] = []
    buffers.wait(lambda: woken.append("first"))
    buffers.give(overdrawn)
    # Nobody else is left to give anything back.
    assert buffers.full
    assert woken == ["first"]
    assert buffers.grow(first, LARGE) is not None


def test_one_frame_may_grow_again_and_again_beyond_the_limit() -> None:
    buffers = FrameBuffers(POOLED_BYTES)
    buffer = buffers.take(LARGE)
    while buffer is not None and len(buffer) < LARGE:
        buffer = buffers.grow(buffer, LARGE)
    assert buffer is not None
    assert buffers.bytes_in_use == LARGE
    buffers.give(buffer)
    assert buffers.bytes_in_use == 0
    assert not buffers.full


def test_pooled_buffers_are_used_again_and_never_by_two_at_once() -> None:
    buffers = FrameBuffers(-1)
    taken = [buffers.take(LARGE) for _ in range(2 * POOLED_BUFFERS)]
    for number, buffer in enumerate(taken):
        assert buffer is not None
        assert len(buffer) == POOLED_BYTES
        buffer[:] = bytes([number]) * POOLED_BYTES
    for number, buffer in enumerate(taken):
        assert buffer is not None
        assert bytes(buffer) == bytes([number]) * POOLED_BYTES
        buffers.give(buffer)
    assert buffers.bytes_in_use == 0
    again = [buffers.take(LARGE) for _ in range(POOLED_BUFFERS)]
    # What was needed beyond the pool has gone back to the system.
    assert {id(buffer) for buffer in again} == {id(buffer) for buffer in taken[:POOLED_BUFFERS]}
