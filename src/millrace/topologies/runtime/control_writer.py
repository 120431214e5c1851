"""The driver's side of the control topic. A second driver of the same topology excludes the first."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from millrace.topologies.model.bolts import StatefulBolt
from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.topology import Plan
from millrace.topologies.runtime import topics
from millrace.topologies.runtime.control import Orders, Unsigned, decode, encode

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 30.0
TRANSACTION_TIMEOUT_MS = 10_000
ORDERS_KEY = b"orders"


class Superseded(TopologyError):
    """Another driver has taken over this topology."""


class ControlWriter:
    """Writes orders in transactions of the driver's own id. One thread may use it."""

    def __init__(self, name: str, key: bytes, bootstrap: str, client: Mapping[str, str]) -> None:
        self._name = name
        self._key = key
        self._topic = topics.control_topic(name)
        self._config: dict[str, Any] = {**client, "bootstrap.servers": bootstrap}
        self._producer = self._new_producer(topics.driver_id(name))
        self._orders: Orders | None = None

    def take_over(self) -> None:
        """Fence every earlier driver of this topology."""
        self._producer.init_transactions(TIMEOUT_SECONDS)

    def begin(self, plan: Plan, workers: int, *, active: bool = True, debug: Mapping[str, float] = {}) -> str:
        """Fence the workers of the last start and announce a new one; returns its name.

        No new worker may run before: an old one with a higher number than any of them would not be fenced.
        """
        last = self._last_orders()
        if last is not None and _is_transactional(plan):
            for number in range(last.workers):
                fencing = self._new_producer(topics.transactional_id(self._name, number))
                fencing.init_transactions(TIMEOUT_SECONDS)
        incarnation = uuid.uuid4().hex
        self._write(Orders(incarnation, workers, active, debug=dict(debug)))
        return incarnation

    def change(self, **changes: Any) -> None:
        """Change the orders; raises Superseded if another driver has taken over."""
        assert self._orders is not None, "begin comes first"
        changed = msgspec.structs.replace(self._orders, **changes)
        if changed != self._orders:
            self._write(changed)

    def renew(self) -> None:
        """Write the orders again; raises Superseded if another driver has taken over."""
        assert self._orders is not None, "begin comes first"
        self._write(self._orders)

    def announce(self, topic: str, key: str, value: bytes) -> None:
        """Write another record of the driver, such as its status; raises Superseded as `change` does."""
        self._commit(topic, key.encode(), value)

    def _write(self, orders: Orders) -> None:
        self._commit(self._topic, ORDERS_KEY, encode(self._key, orders))
        self._orders = orders

    def _commit(self, topic: str, key: bytes, value: bytes) -> None:
        try:
            self._producer.begin_transaction()
            self._producer.produce(topic, value, key, 0)
            self._producer.commit_transaction(TIMEOUT_SECONDS)
        except KafkaException as error:
            reason = error.args[0]
            if reason.fatal() or reason.code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
                raise Superseded(f"another driver runs {self._name} now; this one ends") from error
            if reason.txn_requires_abort():
                self._producer.abort_transaction(TIMEOUT_SECONDS)
            raise

    def _last_orders(self) -> Orders | None:
        consumer = Consumer(
            {
                **self._config,
                "group.id": topics.group_of(self._name),
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        found: Orders | None = None
        try:
            consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
            while True:
                message = consumer.poll(TIMEOUT_SECONDS)
                if message is None:
                    raise TopologyError(
                        f"the control topic of {self._name} cannot be read; is the log there?"
                    )
                error = message.error()
                if error is None:
                    try:
                        found = decode(self._key, message.value())
                    except (Unsigned, msgspec.MsgspecError) as reason:
                        logger.warning("%s@%s is ignored: %s", self._topic, message.offset(), reason)
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
                else:
                    raise KafkaException(error)
        finally:
            consumer.close()

    def _new_producer(self, transactional_id: str) -> Producer:
        return Producer(
            {
                **self._config,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 0,
            }
        )


def _is_transactional(plan: Plan) -> bool:
    """Whether the workers of a topology have transactional ids."""
    return plan.guarantee == "exactly-once" or any(
        issubclass(spec.component, StatefulBolt) for spec in plan.components.values()
    )
