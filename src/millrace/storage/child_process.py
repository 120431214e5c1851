"""The broker's side of a process that does CPU work for it: lines and bytes over its standard streams."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Self

# -P: whatever the working directory holds is not to be imported.
PYTHON = (sys.executable, "-P", "-m")
MAX_LINE_BYTES = 16 << 20


class ProcessEnded(Exception):
    """The process ended before it answered; the text has its last words."""


class ChildProcess:
    """A process that ends with the broker: it reads its standard input, and stops where that does."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, command: Sequence[str]) -> Self:
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=MAX_LINE_BYTES
            )
        )
        try:
            return cls(await asyncio.shield(starting))
        except asyncio.CancelledError:
            # Cancelled halfway, uvloop would forget the process, not end it.
            await cls(await starting)._end()
            raise

    async def end(self) -> None:
        """Kill it, if it still runs, and let go of its pipes."""
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

    async def send(self, *parts: bytes) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.writelines(parts)
            await stdin.drain()
        except ConnectionError:
            raise ProcessEnded(await self._last_words()) from None

    async def answer(self) -> tuple[str, Any]:
        """The next line: a JSON object of one kind of answer and its content."""
        stdout = self._process.stdout
        assert stdout is not None
        line = await stdout.readline()
        if not line.endswith(b"\n"):
            raise ProcessEnded(await self._last_words())
        ((kind, content),) = json.loads(line).items()
        return kind, content

    async def read(self, size: int) -> bytes:
        """The bytes that follow a line."""
        stdout = self._process.stdout
        assert stdout is not None
        try:
            return await stdout.readexactly(size)
        except asyncio.IncompleteReadError:
            raise ProcessEnded(await self._last_words()) from None

    async def _last_words(self) -> str:
        stderr = self._process.stderr
        assert stderr is not None
        said = (await stderr.read()).decode(errors="replace").strip()
        return f"its process ended with {await self._process.wait()}: {said or 'nothing said'}"
