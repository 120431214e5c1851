"""The broker's side of a compaction process: hand it a job, take its answers, end it."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Self

from millrace.storage.compaction import Job, Pass, Replacement

# -P: whatever the working directory holds is not to be imported.
COMMAND = (sys.executable, "-P", "-m", "millrace.storage.compaction")
# A line names every segment that a replacement stands for.
MAX_LINE_BYTES = 16 << 20


class CompactionFailed(Exception):
    """The process did not get through; the log is as it was."""


class CorruptLog(CompactionFailed):
    """The process met a batch that it cannot read."""


class CompactionProcess:
    """One pass over one log in a process of its own."""

    def __init__(self, job: Job) -> None:
        self.done = Pass()
        self._job = job
        self._process: Process

    async def __aenter__(self) -> Self:
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *COMMAND, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=MAX_LINE_BYTES
            )
        )
        try:
            self._process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # Cancelled halfway, uvloop would forget the process, not end it.
            self._process = await starting
            await self._end()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        ending = asyncio.ensure_future(self._end())
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            await ending
            raise

    async def _end(self) -> None:
        process = self._process
        if process.returncode is None:
            process.kill()
        assert process.stdin is not None
        process.stdin.close()
        # Its pipes are closed when all has been read from them; a loop that ends before leaves them open.
        await process.communicate()
        with suppress(ConnectionError):
            await process.stdin.wait_closed()

    async def replacements(self) -> AsyncIterator[Replacement]:
        """Each finished segment; asking for the next lets the process go on."""
        await self._send(self._job.to_json().encode() + b"\n")
        while True:
            kind, content = await self._answer()
            match kind:
                case "replacement":
                    yield Replacement(**content)
                    await self._send(b"\n")
                case "done":
                    self.done = Pass(**content)
                    return
                case "corrupt":
                    raise CorruptLog(content)
                case _:
                    raise CompactionFailed(content)

    async def _send(self, content: bytes) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(content)
            await stdin.drain()
        except ConnectionError:
            raise CompactionFailed(await self._last_words()) from None

    async def _answer(self) -> tuple[str, Any]:
        stdout = self._process.stdout
        assert stdout is not None
        line = await stdout.readline()
        if not line.endswith(b"\n"):
            raise CompactionFailed(await self._last_words())
        ((kind, content),) = json.loads(line).items()
        return kind, content

    async def _last_words(self) -> str:
        stderr = self._process.stderr
        assert stderr is not None
        said = (await stderr.read()).decode(errors="replace").strip()
        return f"its process ended with {await self._process.wait()}: {said or 'nothing said'}"
