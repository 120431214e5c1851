"""Waiting for what another process or thread is about to do."""

import asyncio
import time
from collections.abc import Awaitable, Callable


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Return as soon as the condition holds; fail when it does not come to hold in that time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain"
        time.sleep(0.02)


async def until_async(condition: Callable[[], Awaitable[object]], seconds: float = 60) -> None:
    """The same for a condition that needs the event loop."""
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain"
        await asyncio.sleep(0.02)
