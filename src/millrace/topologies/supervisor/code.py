"""The code of a topology on its way through the log: packed, cut into records, and unpacked by its driver."""

from __future__ import annotations

import hashlib
import io
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from millrace.topologies.model.errors import TopologyError
from millrace.topologies.supervisor.board import Board
from millrace.topologies.supervisor.records import CODE, Job

CHUNK_BYTES = 512 << 10
MOST_BYTES = 256 << 20
TIMEOUT_SECONDS = 30.0
# Equal code must have an equal digest, whenever it is packed.
_SOME_DAY = (2020, 1, 1, 0, 0, 0)


def pack(file: Path, further: Iterable[Path]) -> bytes:
    """The file, the modules beside it that it has imported, and further files, as a ZIP archive."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(_members(file.resolve(), further).items()):
            archive.writestr(zipfile.ZipInfo(name, _SOME_DAY), path.read_bytes(), zipfile.ZIP_DEFLATED)
    packed = content.getvalue()
    if len(packed) > MOST_BYTES:
        raise TopologyError(
            f"the code and files of {file} are {len(packed) >> 20} MB; at most 256 are shipped"
        )
    return packed


def _members(file: Path, further: Iterable[Path]) -> dict[str, Path]:
    members = {file.name: file}
    for path in _imported_beside(file.parent):
        members[path.relative_to(file.parent).as_posix()] = path
    for given in further:
        if given.is_dir():
            found = {f"{given.name}/{path.relative_to(given).as_posix()}": path for path in _files(given)}
        elif given.is_file():
            found = {given.name: given}
        else:
            raise TopologyError(f"there is no file {given}")
        members |= found
    return members


def _files(directory: Path) -> Iterator[Path]:
    return (path for path in directory.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def _imported_beside(directory: Path) -> Iterator[Path]:
    """The source files below this directory that are loaded as modules, except installed packages."""
    for module in list(sys.modules.values()):
        origin = getattr(module, "__file__", None)
        if origin is None or not origin.endswith(".py"):
            continue
        path = Path(origin).resolve()
        if path.is_relative_to(directory) and not {"site-packages", "dist-packages"} & set(path.parts):
            yield path


def digest_of(packed: bytes) -> str:
    return hashlib.sha256(packed).hexdigest()


def chunk_count(packed: bytes) -> int:
    return -(-len(packed) // CHUNK_BYTES)


def ship(board: Board, packed: bytes, on_progress: Callable[[int], object]) -> None:
    """Write the packed code to the log; `on_progress` gets the number of bytes that are there."""
    digest = digest_of(packed)
    for number in range(chunk_count(packed)):
        chunk = packed[number * CHUNK_BYTES : (number + 1) * CHUNK_BYTES]
        board.write(CODE, f"{digest}/{number}", chunk)
        on_progress(number * CHUNK_BYTES + len(chunk))


def fetch(job: Job, config: Mapping[str, Any]) -> bytes:
    """The packed code of a job. Its digest stands in the signed job, so the records need no signature."""
    wanted = {f"{job.digest}/{number}".encode(): number for number in range(job.chunks)}
    found: dict[int, bytes] = {}
    consumer = Consumer(
        {
            **config,
            "group.id": "topology-code",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(CODE, 0, OFFSET_BEGINNING)])
        while len(found) < len(wanted):
            message = consumer.poll(TIMEOUT_SECONDS)
            if message is None:
                raise TopologyError("the log does not answer")
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    break
                raise KafkaException(error)
            key, value = message.key(), message.value()
            if key in wanted and value is not None:
                found[wanted[key]] = value
    finally:
        consumer.close()
    packed = b"".join(found[number] for number in sorted(found))
    if digest_of(packed) != job.digest:
        raise TopologyError(f"the code of {job.name} in the log is not what was submitted; submit it again")
    return packed


def unpack(packed: bytes, directory: Path) -> None:
    """Write the files of the packed code into a directory; no name may lead out of it."""
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        for name in archive.namelist():
            parts = PurePosixPath(name)
            if parts.is_absolute() or ".." in parts.parts:
                raise TopologyError(f"the packed code has a file outside of its directory: {name}")
        archive.extractall(directory)
