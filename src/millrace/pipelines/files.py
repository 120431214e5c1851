"""Small files beside Spark's: on this machine as they are, elsewhere through Spark's own file systems."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def local_path(place: str | Path) -> Path | None:
    """The path of a place on this machine; none if it is a URL of something else."""
    text = str(place)
    if text.startswith("file:"):
        return Path(re.sub(r"^file:(//)?", "", text))
    return None if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:/", text) else Path(text).expanduser().absolute()


class Directory:
    """A directory that Spark can write."""

    def __init__(self, spark: SparkSession, place: str | Path) -> None:
        self._spark = spark
        self._place = str(place)
        self._local = local_path(place)

    def read(self, name: str) -> str | None:
        """The text of a file, if it is there."""
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
        """Write a file whole, or not at all."""
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
        """What is in it, or in a directory of it."""
        if self._local is not None:
            found = self._local / name
            return sorted(one.name for one in found.iterdir()) if found.is_dir() else []
        system, path = self._remote(name)
        if not system.exists(path):
            return []
        return sorted(status.getPath().getName() for status in system.listStatus(path))

    def remove(self) -> None:
        """Delete it with all that is in it."""
        if self._local is not None:
            shutil.rmtree(self._local, ignore_errors=True)
        else:
            system, path = self._remote("")
            system.delete(path, True)

    def _remote(self, name: str) -> tuple[Any, Any]:
        jvm: Any = self._spark._jvm
        path = jvm.org.apache.hadoop.fs.Path(f"{self._place.rstrip('/')}/{name}".rstrip("/"))
        return path.getFileSystem(self._spark._jsc.hadoopConfiguration()), path
