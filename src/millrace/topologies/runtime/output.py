"""Everything that a worker writes to the log: frames, records, dead letters, state, and its transactions."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.log import LogBolt
from millrace.topologies.model.streams import Stream
from millrace.topologies.model.topology import Plan
from millrace.topologies.model.tuples import Tuple
from millrace.topologies.runtime import topics
from millrace.topologies.runtime.frames import Acks, Frames, Sent
from millrace.topologies.runtime.inputs import Place
from millrace.topologies.runtime.lag import Lag
from millrace.topologies.runtime.records import encode_field, encode_tuple

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 30.0
# Longer than the broker lets a transaction be open.
TRANSACTION_SECONDS = 15.0
TRANSACTION_TIMEOUT_MS = 10_000
REASON_CHARACTERS = 1000
# A frame with several tuples is not larger than this; one with a single tuple may be as large as a record.
FRAME_BYTES = 256 * 1024


class Output:
    """The producer of a worker. With a transactional id everything since the last commit is one transaction.

    Owned by the worker's loop; not thread-safe.
    """

    def __init__(
        self,
        plan: Plan,
        client: Mapping[str, Any],
        frames: Frames,
        transactional_id: str | None,
        lag: Lag,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    ) -> None:
        self._plan = plan
        self._frames = frames
        self._lag = lag
        self.is_transactional = transactional_id is not None
        self.in_transaction = False
        self.called_at: float | None = None
        """When the client was asked to end a transaction; None if it is not being asked."""
        self.positions: dict[Place, int] = {}
        """The position after the last change that was written to each changelog."""
        self._tuples: dict[int, list[Sent]] = {}
        self._acks: dict[int, Acks] = {}
        self._edges = {
            task: (topics.edge_topic(plan.name, component), index)
            for component, tasks in plan.tasks.items()
            for index, task in enumerate(tasks)
        }
        config: dict[str, Any] = {
            **client,
            # Commits flush, and an idle worker commits at once: only a busy one collects batches.
            "linger.ms": 5,
            "enable.idempotence": True,
            "message.max.bytes": topics.MAX_RECORD_BYTES,
            "queue.buffering.max.kbytes": 65_536,
        }
        if transactional_id is not None:
            config["transactional.id"] = transactional_id
            config["transaction.timeout.ms"] = transaction_timeout_ms
        self._producer = Producer(config)

    def fence(self) -> None:
        """Let no earlier producer of the same transactional id write any more."""
        if self.is_transactional:
            self._producer.init_transactions(TIMEOUT_SECONDS)

    # What the engine asks for

    def send_tuple(self, task: int, tup: Tuple) -> None:
        self._tuples.setdefault(task, []).append(
            Sent(tup.component, tup.stream, tup.task, tup.values, tup.edges)
        )

    def send_ack(self, worker: int, root: int, edges: int) -> None:
        done = self._acks.setdefault(worker, Acks()).done
        done[root] = done.get(root, 0) ^ edges

    def send_fail(self, worker: int, root: int, reason: str) -> None:
        self._acks.setdefault(worker, Acks()).failed[root] = reason

    def send_reset(self, worker: int, root: int) -> None:
        self._acks.setdefault(worker, Acks()).resets.add(root)

    def write(self, bolt: LogBolt, tup: Tuple) -> None:
        topic = bolt.topic(tup) if callable(bolt.topic) else bolt.topic
        key = None if bolt.key is None else encode_field(tup[bolt.key])
        value = encode_tuple(tup) if bolt.value is None else encode_field(tup[bolt.value])
        self.produce(topic, key=key, value=value)

    def dead_letter(self, component: str, values: Sequence[Any], stream: Stream, reason: str) -> None:
        content = dict(zip(stream.fields, values, strict=False))
        headers = [
            ("topology", self._plan.name),
            ("component", component),
            ("reason", reason[:REASON_CHARACTERS]),
        ]
        self.produce(
            topics.dead_letter_topic(self._plan, component),
            value=json.dumps(content, default=str).encode(),
            headers=headers,
        )

    # What the worker asks for

    def give_up(self, message: Any, component: str, reason: str) -> None:
        """Keep a record that failed too often, as it is, in the dead-letter topic."""
        source = f"{message.topic()}-{message.partition()}@{message.offset()}"
        headers = [
            *(message.headers() or []),
            ("topology", self._plan.name),
            ("component", component),
            ("source", source),
            ("reason", reason[:REASON_CHARACTERS]),
        ]
        self.produce(
            topics.dead_letter_topic(self._plan, component),
            key=message.key(),
            value=message.value(),
            headers=headers,
        )
        logger.error("%s gave up %s: %s", component, source, reason)

    def send_frames(self, timestamp_ms: int = 0) -> None:
        """Send what the tasks of other workers are to get, as of a moment if one is given."""
        tuples, self._tuples = self._tuples, {}
        for task, sent in tuples.items():
            topic, index = self._edges[task]
            for frame in self._encoded(sent):
                self._lag.sent(task, len(frame))
                self.produce(
                    topic,
                    partition=index,
                    value=frame,
                    timestamp=timestamp_ms,
                    on_delivery=partial(self._frame_delivered, task, len(frame)),
                )
        acks, self._acks = self._acks, {}
        for worker, merged in acks.items():
            topic = topics.ack_topic(self._plan.name)
            self.produce(topic, partition=worker, value=self._frames.encode_acks(merged))
        self._producer.poll(0)

    def write_changes(self, place: Place, changes: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write the changes of a state, of which there are some, to its changelog; None deletes a key."""
        topic, partition = place
        for key, value in changes[:-1]:
            self.produce(topic, partition=partition, key=key, value=value)
        key, value = changes[-1]
        self.produce(
            topic,
            partition=partition,
            key=key,
            value=value,
            on_delivery=partial(self._change_delivered, place),
        )

    def _change_delivered(self, place: Place, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.positions[place] = message.offset() + 1
        else:
            self._delivered(error, message)

    def _encoded(self, tuples: Sequence[Sent]) -> Iterator[bytes]:
        """Tuples in as few frames as the size of a record allows."""
        try:
            frame = self._frames.encode(tuples)
        except TopologyError as error:
            raise self._named(tuples, error) from error
        if len(frame) <= FRAME_BYTES or len(tuples) == 1:
            yield frame
            return
        half = len(tuples) // 2
        yield from self._encoded(tuples[:half])
        yield from self._encoded(tuples[half:])

    def _named(self, tuples: Sequence[Sent], error: TopologyError) -> TopologyError:
        """The error with the component and the field whose value cannot be sent."""
        for sent in tuples:
            fields = self._plan.components[sent.component].streams[sent.stream].fields
            for field, value in zip(fields, sent.values, strict=True):
                try:
                    self._frames.encode([sent._replace(values=[value])])
                except TopologyError:
                    return TopologyError(f"{sent.component} emits the field {field!r}: {error}")
        return error

    def produce(self, topic: str, **record: Any) -> None:
        self._begin()
        if not self.is_transactional:
            # A transaction cannot be committed if a record of it is not delivered.
            record.setdefault("on_delivery", self._delivered)
        while True:
            try:
                self._producer.produce(topic, **record)
                return
            except BufferError:
                # The broker is slower than the bolts: wait for room, which slows the source down.
                self._producer.poll(0.1)

    def _begin(self) -> None:
        if self.is_transactional and not self.in_transaction:
            self._producer.begin_transaction()
            self.in_transaction = True

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        # An abort drops what was not sent yet.
        if error is not None and error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            raise KafkaException(error)

    def _frame_delivered(self, task: int, size: int, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self._lag.written(task, size, message.offset())
        else:
            self._lag.dropped(task, size)
            self._delivered(error, message)

    def flush(self) -> None:
        """Wait until the log has everything."""
        if self._producer.flush(TIMEOUT_SECONDS):
            raise TopologyError("the log does not accept the outputs; the inputs are read again")

    def commit(self, offsets: list[TopicPartition], group: Any) -> None:
        """End the transaction: outputs become visible together with the offsets of the inputs."""
        if not offsets and not self.in_transaction:
            return
        self._begin()
        if offsets:
            with self._calling():
                self._producer.send_offsets_to_transaction(offsets, group, TRANSACTION_SECONDS)
        with self._calling():
            self._producer.commit_transaction(TRANSACTION_SECONDS)
        self._producer.poll(0)
        self.in_transaction = False

    @contextmanager
    def _calling(self) -> Iterator[None]:
        """Lets the watchdog notice a call that does not return.

        librdkafka may wait without end for the offsets of a transaction if the broker was killed meanwhile.
        """
        self.called_at = time.monotonic()
        try:
            yield
        finally:
            self.called_at = None

    def abort(self) -> None:
        """Undo everything since the last commit."""
        self._tuples.clear()
        self._acks.clear()
        if self.in_transaction:
            with self._calling():
                self._producer.abort_transaction(TRANSACTION_SECONDS)
            self._producer.poll(0)
            self.positions.clear()
            self.in_transaction = False
