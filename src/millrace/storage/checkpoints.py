"""Kafka's checkpoint files: a version line, a count line, then one entry per line."""

from collections.abc import Iterable
from pathlib import Path

from millrace.disk import Disk

_VERSION = "0"


class CorruptCheckpoint(Exception):
    """A checkpoint file that cannot be used."""


def encode_checkpoint(entries: Iterable[tuple[object, ...]]) -> bytes:
    """The content of a checkpoint file."""
    lines = [" ".join(map(str, entry)) for entry in entries]
    return "".join(f"{line}\n" for line in (_VERSION, str(len(lines)), *lines)).encode()


def read_checkpoint(path: Path, fields: int) -> list[list[str]]:
    """The entries of a checkpoint file, split into fields; none where there is no file."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError:
        raise CorruptCheckpoint(f"{path} is not text") from None
    entries = [line.split(" ") for line in lines[2:]]
    if lines[:2] != [_VERSION, str(len(entries))] or any(len(entry) != fields for entry in entries):
        raise CorruptCheckpoint(f"{path} is damaged")
    return entries


def write_checkpoint(
    path: Path, entries: Iterable[tuple[object, ...]], disk: Disk, *, durable: bool = True
) -> None:
    """Replace a checkpoint file whole."""
    disk.replace(path, encode_checkpoint(entries), durable=durable)
