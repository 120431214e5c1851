"""Small files next to Spark's: local ones directly, others through Hadoop's file systems."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def local_path(location: str | Path) -> Path | None:
    """The local path of a location; None if it is a URL of another file system."""
    text = str(location)
    if text.startswith("file:"):
        return Path(re.sub(r"^file:(//)?", "", text))
    return None if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:/", text) else Path(text).expanduser().absolute()


class Directory:
    """A directory that Spark can write."""

    def __init__(self, spark: SparkSession, location: str | Path) -> None:
        self._spark = spark
        self._location = str(location)
        self._local = local_path(location)

    def read(self, name: str) -> str | None:
        """Return the text of a file, or None if it does not exist."""
        if self._local is not None:
            file = self._local / name
            return file.read_text(encoding="utf-8") if file.is_file() else None
        system, path = self._remote(name)
        if not system.exists(path):
            return None
        stream = system.open(path)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a file. A local file is replaced atomically."""
        if self._local is not None:
            self._local.mkdir(parents=True, exist_ok=True)
            part = self._local / f".{name}.{os.getpid()}"
            part.write_text(text, encoding="utf-8")
            part.replace(self._local / name)
            return
        system, path = self._remote(name)
        stream = system.create(path, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def names(self, name: str = "") -> list[str]:
        """List the directory, or a directory in it; empty if it does not exist."""
        if self._local is not None:
            listed = self._local / name
            return sorted(entry.name for entry in listed.iterdir()) if listed.is_dir() else []
        system, path = self._remote(name)
        if not system.exists(path):
            return []
        return sorted(status.getPath().getName() for status in system.listStatus(path))

    def remove(self) -> None:
        """Delete the directory with its contents."""
        if self._local is not None:
            shutil.rmtree(self._local, ignore_errors=True)
        else:
            system, path = self._remote("")
            system.delete(path, True)

    def _remote(self, name: str) -> tuple[Any, Any]:
        jvm: Any = self._spark._jvm
        path = jvm.org.apache.hadoop.fs.Path(f"{self._location.rstrip('/')}/{name}".rstrip("/"))
        return path.getFileSystem(self._spark._jsc.hadoopConfiguration()), path
