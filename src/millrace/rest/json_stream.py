"""JSON objects in a stream of bytes, found as they arrive; the stream is never held as a whole."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

_MARKS = re.compile(rb'["\\{}]')
_STRING_END = re.compile(rb'["\\]')
_WHITESPACE = b" \t\r\n,"

MAX_OBJECT_BYTES = 16_000_000


class BadStream(ValueError):
    """Bytes that are not a sequence of JSON objects."""


class ObjectSplitter:
    """Cuts a stream into the bytes of its objects. Between objects, white space and commas are skipped."""

    def __init__(self, limit: int = MAX_OBJECT_BYTES) -> None:
        self._buffer = bytearray()
        self._limit = limit
        self._scanned = 0
        self._depth = 0
        self._in_string = False

    def feed(self, data: bytes) -> list[bytes]:
        """The objects that end in this piece. Raises BadStream."""
        self._buffer += data
        found = []
        while (end := self._next_end()) is not None:
            found.append(bytes(self._buffer[:end]))
            del self._buffer[:end]
            self._scanned = 0
        if len(self._buffer) > self._limit:
            raise BadStream(f"an object has more than {self._limit} bytes")
        return found

    def finish(self) -> None:
        """Raise BadStream if the stream ended inside of an object."""
        if self._buffer.strip(_WHITESPACE):
            raise BadStream("the stream ends inside of an object")

    def _next_end(self) -> int | None:
        """The end of the first object in the buffer, if it is there."""
        if self._depth == 0:
            rest = self._buffer.lstrip(_WHITESPACE)
            if not rest:
                self._buffer.clear()
                return None
            if rest[:1] != b"{":
                raise BadStream("something else than a JSON object")
            self._buffer = rest
        while True:
            match = (_STRING_END if self._in_string else _MARKS).search(self._buffer, self._scanned)
            if match is None:
                self._scanned = len(self._buffer)
                return None
            mark, self._scanned = match[0], match.end()
            if mark == b"\\":
                if self._scanned >= len(self._buffer):
                    # The escaped letter has not arrived yet.
                    self._scanned -= 1
                    return None
                self._scanned += 1
            elif mark == b'"':
                self._in_string = not self._in_string
            else:
                self._depth += 1 if mark == b"{" else -1
                if self._depth == 0:
                    return self._scanned


async def objects(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The objects of a stream, each as soon as it is complete. Raises BadStream."""
    splitter = ObjectSplitter()
    async for data in stream:
        for each in splitter.feed(data):
            yield each
    splitter.finish()
