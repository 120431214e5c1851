"""Replies to requests: chunks of bytes and of files, and the function that makes them from a frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import FileIO
from typing import Protocol, TypeAlias

from millrace.deferred import Deferred


class FileRange(Protocol):
    """A piece of a file, sent without passing through Python."""

    @property
    def file(self) -> FileIO: ...
    @property
    def position(self) -> int: ...
    @property
    def length(self) -> int: ...


BYTES = (bytes, bytearray, memoryview)
Bytes: TypeAlias = "bytes | bytearray | memoryview"
Chunk: TypeAlias = "Bytes | FileRange"
Reply: TypeAlias = "Sequence[Chunk] | None"
"""The response to a request; None for a request without one (Produce with acks=0)."""


class CloseConnection(Exception):
    """The client sent a request that cannot be answered; the text says why."""


LateReply: TypeAlias = "Deferred[Reply | CloseConnection]"
Dispatch: TypeAlias = "Callable[[memoryview], Reply | LateReply]"
"""Handles one frame. The frame's memory is reused as soon as it returns."""
