"""Wait for another process or thread."""

import asyncio
import time
from collections.abc import Awaitable, Callable


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Return as soon as the condition holds; fail if it does not hold in time."""
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


def run_until(loop: asyncio.AbstractEventLoop, condition: Callable[[], object], seconds: float = 60) -> None:
    """Run a loop until the condition holds; fail if it does not hold in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain"
        loop.run_until_complete(asyncio.sleep(0.001))
