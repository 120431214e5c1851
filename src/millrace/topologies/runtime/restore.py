"""Restoring state: a changelog read back from its beginning to its end."""

from __future__ import annotations

from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from millrace.topologies.model.errors import TopologyError
from millrace.topologies.runtime.frames import Values
from millrace.topologies.runtime.inputs import Place
from millrace.topologies.runtime.state import TaskState

POLL_RECORDS = 10_000
SILENCE_SECONDS = 30.0


def restore(config: dict[str, Any], place: Place, state: TaskState, values: Values) -> int:
    """Take up every committed change of a changelog partition; returns how many there were."""
    consumer = Consumer({**config, "enable.partition.eof": True})
    count = 0
    try:
        consumer.assign([TopicPartition(*place, OFFSET_BEGINNING)])
        while True:
            first = consumer.poll(SILENCE_SECONDS)
            if first is None:
                raise TopologyError(f"the changelog {place[0]}-{place[1]} cannot be read; is the log there?")
            for message in (first, *consumer.consume(POLL_RECORDS, 0)):
                error = message.error()
                if error is None:
                    key, value = message.key(), message.value()
                    assert key is not None, "workers write every change with its key"
                    state.restore(
                        values.decode(key),
                        None if value is None else values.decode(value),
                        deleted=value is None,
                    )
                    count += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    return count
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
