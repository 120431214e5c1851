"""The file that a log appends to, which must keep its name for as long as the log is open."""

import os
from pathlib import Path
from typing import NamedTuple

from millrace.disk import OpenFile


class ActiveFile(NamedTuple):
    """An open file and the name under which the next start will look for it."""

    path: Path
    file: OpenFile

    def is_in_place(self) -> bool:
        """Whether the file still has its name, and was not deleted, moved or replaced; for any thread."""
        try:
            named = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            # A disk that cannot say is found out by writing to it.
            return True
        return os.path.samestat(named, os.fstat(self.file.fileno()))

    @property
    def rescue(self) -> str:
        """The command that saves the content for as long as this process has the file open."""
        return f"cp /proc/{os.getpid()}/fd/{self.file.fileno()} {self.path}"
