"""A piece of a segment on its way to a client."""

import os

from millrace.disk import OpenFile


class FileSlice:
    """Bytes of a segment for sendfile; keeps the file open while referenced."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: OpenFile, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        """The bytes, for connections that cannot sendfile."""
        return os.pread(self.file.fileno(), self.length, self.position)
