"""Gives out producer ids, each of them only once."""

import json
from collections.abc import Iterable
from typing import Protocol

from millrace.errors import Error, KafkaError
from millrace.storage.log_dir import LogDir

BLOCK_SIZE = 1000
_FILE_NAME = "producer-ids.json"


class ProducerIdAllocator(Protocol):
    """Gives out producer ids that no other broker gives out."""

    def allocate(self) -> int:
        """An id that was never given before; raises KafkaError or OSError if there is none at present."""

    def skip_past(self, producer_id: int) -> None:
        """Never give out an id up to this one: a producer has it."""


class ProducerIds:
    """Takes ids from blocks that are written down as used before the first id of a block goes out.

    A killed broker wastes the rest of its block and never gives an id twice. Owned by the broker loop;
    not thread-safe.
    """

    def __init__(self, log_dir: LogDir) -> None:
        self._path = log_dir.path / _FILE_NAME
        self._disk = log_dir.disk
        written = self._read()
        self.is_ready = written is not None
        """Whether ids can be given out: false where nothing is written down, until `begin_after`."""
        self._next = self._end = written or 0

    def begin_after(self, in_use: Iterable[int]) -> None:
        """Begin after the ids that logs know, as in a directory taken over from Kafka."""
        if not self.is_ready:
            self.is_ready = True
            self.skip_past(max(in_use, default=-1))

    def allocate(self) -> int:
        """An id that was never given before."""
        if not self.is_ready:
            raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS, "The logs are still being opened.")
        if self._next == self._end:
            self._take_block()
        producer_id = self._next
        self._next += 1
        return producer_id

    def skip_past(self, producer_id: int) -> None:
        """Never give out an id up to this one: a producer has it."""
        self._next = max(self._next, producer_id + 1)
        self._end = max(self._end, self._next)

    def _take_block(self) -> None:
        end = self._end + BLOCK_SIZE
        content = {"version": 1, "next_block_start": end}
        self._disk.replace(self._path, json.dumps(content).encode() + b"\n")
        self._end = end

    def _read(self) -> int | None:
        try:
            return int(json.loads(self._path.read_bytes())["next_block_start"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise OSError(
                f"{self._path} cannot be read ({error}); restore it, or set next_block_start in it "
                "above every producer id in use"
            ) from error
