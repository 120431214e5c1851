"""Groups the records of a producer into transactions of a given duration."""

import time
import uuid
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException

from millrace.cli.terminal.errors import CommandError

OWN_NAME = "performance-producer"
DEFAULT_DURATION_MS = 3000


def transactional_id(given: str | None, properties: Mapping[str, str], duration_ms: int | None) -> str | None:
    """The transactional id; a random one if only a duration is given, None without transactions."""
    named = given or properties.get("transactional.id")
    return named if named or duration_ms is None else f"{OWN_NAME}-{uuid.uuid4()}"


class TimedTransactions:
    """The transactions of one producer."""

    def __init__(self, producer: Any, duration_ms: int | None) -> None:
        self._producer = producer
        self._duration_seconds = (duration_ms or DEFAULT_DURATION_MS) / 1000
        self._began: float | None = None
        self._call(producer.init_transactions)

    def begin(self) -> None:
        """Begin a transaction unless one is open."""
        if self._began is None:
            self._call(self._producer.begin_transaction)
            self._began = time.monotonic()

    def commit_if_due(self) -> None:
        """Commit a transaction that has been open for long enough."""
        if self._began is not None and time.monotonic() - self._began >= self._duration_seconds:
            self.commit()

    def commit(self) -> None:
        """Commit the open transaction; waits for all its records."""
        if self._began is not None:
            self._call(self._producer.commit_transaction)
            self._began = None

    @staticmethod
    def _call(step: Any) -> None:
        try:
            step()
        except KafkaException as error:
            raise CommandError(f"the transaction failed: {error.args[0].str()}") from None
