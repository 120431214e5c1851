"""Secrets in files that only their owner can read."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

BYTES = 32


class InsecureSecret(Exception):
    """Others can read or write a secret; the text says which file, and what to do."""


def secret(path: Path) -> str:
    """The secret in a file, in hexadecimal; a new one is written first if there is no such file."""
    try:
        return read_secret(path)
    except FileNotFoundError:
        _write(path, secrets.token_hex(BYTES))
        return read_secret(path)


def read_secret(path: Path) -> str:
    """The secret in a file that exists; raises InsecureSecret if it is not its owner's alone."""
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            raise InsecureSecret(f"others may read {path} (mode {mode:o}); delete it, a new one is made")
        return file.read().decode("ascii").strip()


def _write(path: Path, content: str) -> None:
    """Write the file whole or not at all, so that a second process never reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, content.encode() + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        # Unlike a rename, a link fails if another process was first: its secret counts.
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
