"""Failures of the disk under a log, as its clients and the broker's log see them."""

from __future__ import annotations

import logging
from pathlib import Path

from millrace.clock import Clock
from millrace.errors import Error, KafkaError

logger = logging.getLogger(__name__)


class DiskFailures:
    """Turns the failures of one log's disk into KafkaErrors, and logs one of them per second."""

    __slots__ = ("_clock", "_directory", "_quiet_until")

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._quiet_until = 0.0

    def error(self, action: str, failure: OSError) -> KafkaError:
        message = f"Cannot {action} {self._directory.name}: {failure.strerror or failure}"
        now = self._clock.monotonic()
        # A full disk fails every append.
        if now >= self._quiet_until:
            self._quiet_until = now + 1.0
            logger.error("%s (%s)", message, self._directory)
        return KafkaError(Error.KAFKA_STORAGE_ERROR, message)
