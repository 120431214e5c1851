"""The process that inspects large batches: run as `python -m millrace.storage.inspection_worker`.

It reads tasks on its standard input, each a JSON line with the batch behind it, and answers each with a line:
`accepted` with the size of the batch that follows (0 where it stays as it was sent), or `refused`. It ends
with its standard input.
"""

import json
import os
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Self

from millrace.errors import KafkaError
from millrace.storage.append_rules import AppendRules
from millrace.storage.inspection import InvalidRecords, inspect
from millrace.wire.compression import Codec
from millrace.wire.records import read_header

NICENESS = 5


@dataclass(frozen=True, slots=True)
class Task:
    """A batch of this size is to be inspected by these rules."""

    size: int
    rules: AppendRules
    now_ms: int

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        fields = json.loads(line)
        rules = fields["rules"]
        if rules["codec"] is not None:
            rules["codec"] = Codec(rules["codec"])
        return cls(fields["size"], AppendRules(**rules), fields["now_ms"])


def _answer(batch: bytes, task: Task) -> tuple[dict[str, object], bytes]:
    """The line to answer with, and what follows it."""
    try:
        accepted = inspect(batch, read_header(batch), task.rules, task.now_ms)
    except KafkaError as refusal:
        named = refusal.record_errors if isinstance(refusal, InvalidRecords) else None
        return {"refused": (refusal.error, refusal.message, named)}, b""
    rebuilt = b"" if accepted.buffer is batch else bytes(accepted.buffer)
    return {"accepted": len(rebuilt)}, rebuilt


def main() -> None:
    """Inspect batches until there are no more."""
    os.nice(NICENESS)
    tasks, answers = sys.stdin.buffer, sys.stdout.buffer
    # Nobody waits for answers where the broker has ended.
    with suppress(BrokenPipeError):
        while line := tasks.readline():
            task = Task.from_line(line)
            said, rebuilt = _answer(tasks.read(task.size), task)
            answers.write(json.dumps(said).encode() + b"\n" + rebuilt)
            answers.flush()


if __name__ == "__main__":
    main()
