"""The watchdog of a worker ends what cannot end by itself."""

import threading
import time
from typing import Any

from millrace.topologies.runtime.watchdog import CALL_SECONDS, Watchdog


class IdleEngine:
    executing = None
    calls: dict[int, Any] = {}


def watch(called_at: float | None) -> threading.Event:
    """Watch a worker that waits for its client since then; the event is set if the worker is ended."""
    ended = threading.Event()
    watchdog = Watchdog(IdleEngine(), 0.1, lambda *_: None, lambda: called_at, ended.set)
    watchdog.start()
    return ended


def test_a_client_that_never_ends_a_transaction_ends_its_worker() -> None:
    assert watch(time.monotonic() - CALL_SECONDS - 1).wait(30)


def test_a_client_has_time_to_end_a_transaction() -> None:
    assert not watch(time.monotonic()).wait(0.2)
    assert not watch(None).wait(0.2)
