"""Writes groups of records in transactions: all records of a group are in the log, or none.

QoS 2 rests on it. A message and the note that its packet id has been received are one group, so that a
message that is repeated after a crash is recognized. Groups that arrive while a transaction is under way
share the next one.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaException

from millrace.mqtt.log.clients import producer
from millrace.mqtt.log.topics import LogUnavailable
from millrace.mqtt.log.uplink import Written
from millrace.mqtt.messages import Record, Source

if TYPE_CHECKING:
    from confluent_kafka import Producer

    from millrace.mqtt.settings import Settings

logger = logging.getLogger(__name__)

MAX_GROUPS = 1000
COMMIT_SECONDS = 30.0
RETRY_SECONDS = 1.0


class Group(NamedTuple):
    """Records that belong together. `done` is called once, with the outcome of the first record."""

    records: list[Record]
    done: Callable[[Written], None]


class Transactions:
    """A transactional producer on a thread of its own; the callbacks run on the event loop."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self._settings = settings
        self._loop = loop
        self._groups: queue.SimpleQueue[Group | None] = queue.SimpleQueue()
        self._producer: Producer | None = None
        self._thread = threading.Thread(target=self._run, name="mqtt-transactions", daemon=True)

    async def start(self) -> None:
        """Fence an earlier server of this name, and abort the transaction that it may have left open.

        Raises LogUnavailable.
        """
        try:
            self._producer = await asyncio.to_thread(self._connect)
        except KafkaException as error:
            reason = error.args[0].str()
            raise LogUnavailable(
                f"the log at {self._settings.bootstrap} offers no transactions: {reason}"
            ) from error
        self._thread.start()

    def _connect(self) -> Producer:
        connected = producer(
            self._settings,
            **{
                "transactional.id": f"millrace-{self._settings.name}",
                "transaction.timeout.ms": 30_000,
                "message.timeout.ms": 20_000,
                "linger.ms": 0,
            },
        )
        connected.init_transactions(COMMIT_SECONDS)
        return connected

    def send(self, records: list[Record], done: Callable[[Written], None]) -> None:
        self._groups.put(Group(records, done))

    def _run(self) -> None:
        while True:
            first = self._groups.get()
            if first is None:
                return
            groups, is_last = [first], False
            while len(groups) < MAX_GROUPS:
                try:
                    more = self._groups.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    is_last = True
                    break
                groups.append(more)
            outcomes = self._commit(groups)
            self._loop.call_soon_threadsafe(_report, groups, outcomes)
            if is_last:
                return

    def _commit(self, groups: list[Group]) -> list[Written]:
        """Write the groups in one transaction."""
        outcomes = [Written(None, 0, "not written")] * len(groups)
        try:
            if self._producer is None:
                self._producer = self._connect()
            self._producer.begin_transaction()
            for index, group in enumerate(groups):
                for position, record in enumerate(group.records):
                    self._produce(record, outcomes if position == 0 else None, index)
            self._finish(self._producer)
        except Exception as error:
            logger.warning("%d messages of QoS 2 were not written: %s", len(groups), error)
            self._recover(error)
            return [Written(None, 0, str(error))] * len(groups)
        return outcomes

    def _finish(self, committing: Producer) -> None:
        """Commit; a commit whose outcome is unknown is asked for until it is known."""
        while True:
            try:
                committing.commit_transaction(COMMIT_SECONDS)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                logger.warning("committing again: %s", error.args[0].str())

    def _produce(self, record: Record, outcomes: list[Written] | None, index: int) -> None:
        assert self._producer is not None

        def delivered(error: Any, message: Any) -> None:
            if error is None and outcomes is not None:
                source = Source(message.topic(), message.partition())
                outcomes[index] = Written(source, message.offset())

        while True:
            try:
                self._producer.produce(
                    record.topic, record.value, record.key, headers=record.headers, on_delivery=delivered
                )
                return
            except BufferError:
                self._producer.poll(0.1)

    def _recover(self, error: Exception) -> None:
        """Abort the transaction; a producer that cannot is replaced at the next one."""
        if self._producer is None:
            # It could not connect: the log is away.
            time.sleep(RETRY_SECONDS)
            return
        try:
            if isinstance(error, KafkaException) and error.args[0].fatal():
                raise error
            self._producer.abort_transaction(COMMIT_SECONDS)
        except Exception as failure:
            logger.warning("the transaction could not be aborted, a new producer follows: %s", failure)
            self._producer = None

    async def close(self) -> None:
        """Write what is on its way."""
        if self._thread.is_alive():
            self._groups.put(None)
            await asyncio.to_thread(self._thread.join)


def _report(groups: list[Group], outcomes: list[Written]) -> None:
    for group, outcome in zip(groups, outcomes, strict=True):
        group.done(outcome)
