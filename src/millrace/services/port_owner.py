"""The process that listens on a port, for messages about ports that are taken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

LISTENING = "0A"


def port_owner(port: int) -> str | None:
    """The process that listens on a TCP port, as "name (pid 42)"; None if it cannot be found out."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    if not sockets:
        return None
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(entry.readlink()) in sockets for entry in (process / "fd").iterdir()):
                return f"{(process / 'comm').read_text().strip()} (pid {process.name})"
        except OSError:
            # It has ended, or belongs to another user.
            continue
    return None


def _listening(port: int) -> Iterator[str]:
    """The inodes of the sockets that listen on a port."""
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            columns = line.split()
            if columns[3] == LISTENING and int(columns[1].rpartition(":")[2], 16) == port:
                yield columns[9]
