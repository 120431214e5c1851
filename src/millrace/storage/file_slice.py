"""A piece of a segment on its way to a client."""

import os

from millrace.disk import OpenFile


class FileSlice:
    """Bytes of a segment, to be sent from the page cache; keeps the file open while referenced."""

    __slots__ = ("file", "length", "next_offset", "position")

    def __init__(self, file: OpenFile, position: int, length: int, next_offset: int = -1) -> None:
        self.file = file
        self.position = position
        self.length = length
        # The offset that follows the last batch.
        self.next_offset = next_offset

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        """The bytes themselves."""
        content = os.pread(self.file.fileno(), self.length, self.position)
        if len(content) < self.length:
            raise OSError("the segment has become shorter")
        return content
