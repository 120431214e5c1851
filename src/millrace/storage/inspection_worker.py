"""The process that reads large batches: run as `python -m millrace.storage.inspection_worker`.

It reads tasks on its standard input, each a JSON line with the batch behind it, and answers each with a line:
`accepted` with the size of the batch that follows (0 if it stays as it was sent), `found`, or `refused`. It
ends with its standard input.
"""

import json
import os
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from millrace.errors import KafkaError
from millrace.storage.append_rules import AppendRules
from millrace.storage.inspection import InvalidRecords, find_by_time, inspect
from millrace.wire.compression import Codec
from millrace.wire.records import read_header

NICENESS = 5


@dataclass(frozen=True, slots=True)
class Check:
    """A client's batch is to be inspected by its topic's rules."""

    rules: AppendRules
    now_ms: int

    def answer(self, batch: bytes) -> tuple[dict[str, object], bytes]:
        accepted = inspect(batch, read_header(batch), self.rules, self.now_ms)
        rebuilt = b"" if accepted.buffer is batch else bytes(accepted.buffer)
        return {"accepted": len(rebuilt)}, rebuilt


@dataclass(frozen=True, slots=True)
class Search:
    """The first record is to be found that is neither older than a timestamp nor before an offset."""

    timestamp_ms: int
    start_offset: int

    def answer(self, batch: bytes) -> tuple[dict[str, object], bytes]:
        return {"found": find_by_time(batch, self.timestamp_ms, self.start_offset)}, b""


Task: TypeAlias = Check | Search


def to_line(task: Task, size: int) -> bytes:
    """A task as it is sent, for a batch of this size."""
    return json.dumps({"size": size, type(task).__name__: asdict(task)}).encode() + b"\n"


def from_line(line: bytes) -> tuple[Task, int]:
    fields: dict[str, Any] = json.loads(line)
    size = fields.pop("size")
    if (search := fields.get(Search.__name__)) is not None:
        return Search(**search), size
    check = fields[Check.__name__]
    rules = check["rules"]
    if rules["codec"] is not None:
        rules["codec"] = Codec(rules["codec"])
    return Check(AppendRules(**rules), check["now_ms"]), size


def _answer(task: Task, batch: bytes) -> tuple[dict[str, object], bytes]:
    """The line to answer with, and what follows it."""
    try:
        return task.answer(batch)
    except KafkaError as refusal:
        named = refusal.record_errors if isinstance(refusal, InvalidRecords) else None
        return {"refused": (refusal.error, refusal.message, named)}, b""


def main() -> None:
    """Do tasks until there are no more."""
    os.nice(NICENESS)
    tasks, answers = sys.stdin.buffer, sys.stdout.buffer
    # The broker may have ended, and wait for no answer.
    with suppress(BrokenPipeError):
        while line := tasks.readline():
            task, size = from_line(line)
            said, rebuilt = _answer(task, tasks.read(size))
            answers.write(json.dumps(said).encode() + b"\n" + rebuilt)
            answers.flush()


if __name__ == "__main__":
    main()
