"""The broker's side of a compaction process: hand it a job, take its answers, end it."""

from collections.abc import AsyncIterator
from typing import Self

from millrace.storage.child_process import PYTHON, ChildProcess, ProcessEnded
from millrace.storage.compaction import Job, Pass, Replacement

COMMAND = (*PYTHON, "millrace.storage.compaction")


class CompactionFailed(Exception):
    """The process did not get through; the log is as it was."""


class CorruptLog(CompactionFailed):
    """The process met a batch that it cannot read."""


class CompactionProcess:
    """One pass over one log in a process of its own."""

    def __init__(self, job: Job) -> None:
        self.done = Pass()
        self._job = job
        self._process: ChildProcess

    async def __aenter__(self) -> Self:
        self._process = await ChildProcess.start(COMMAND)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._process.end()

    async def replacements(self) -> AsyncIterator[Replacement]:
        """Each finished segment; asking for the next lets the process continue."""
        try:
            await self._process.send(self._job.to_json().encode(), b"\n")
            while True:
                kind, content = await self._process.answer()
                match kind:
                    case "replacement":
                        yield Replacement(**content)
                        await self._process.send(b"\n")
                    case "done":
                        self.done = Pass(**content)
                        return
                    case "corrupt":
                        raise CorruptLog(content)
                    case _:
                        raise CompactionFailed(content)
        except ProcessEnded as failure:
            raise CompactionFailed(str(failure)) from None
