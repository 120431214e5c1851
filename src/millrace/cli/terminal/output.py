"""Standard output and standard error, where they meet on one line."""

import io
import os
import sys


def is_one_stream() -> bool:
    """Whether standard output and standard error go to the same terminal, pipe or file."""
    try:
        return os.path.samestat(os.fstat(sys.stdout.fileno()), os.fstat(sys.stderr.fileno()))
    except (io.UnsupportedOperation, OSError):
        return False
