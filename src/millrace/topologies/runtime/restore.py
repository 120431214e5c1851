"""Restoring state: a changelog read from where the local state is to its end."""

from __future__ import annotations

import logging
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from millrace.topologies.model.errors import TopologyError
from millrace.topologies.runtime.frames import Values
from millrace.topologies.runtime.inputs import Place
from millrace.topologies.runtime.state import TaskState

logger = logging.getLogger(__name__)

POLL_RECORDS = 10_000
SILENCE_SECONDS = 30.0


def restore(config: dict[str, Any], place: Place, state: TaskState, values: Values) -> int:
    """Take up every committed change that the state has not; returns how many there were."""
    consumer = Consumer({**config, "enable.partition.eof": True, "auto.offset.reset": "error"})
    count = 0
    try:
        consumer.assign([TopicPartition(*place, state.offset)])
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
                        values.decode_key(key),
                        None if value is None else values.decode(value),
                        deleted=value is None,
                    )
                    count += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    state.commit(message.offset())
                    return count
                elif error.code() == KafkaError._AUTO_OFFSET_RESET and state.offset:
                    logger.warning("%s-%d is shorter than its local copy, which is dropped", *place)
                    state.clear()
                    consumer.seek(TopicPartition(*place, 0))
                else:
                    raise KafkaException(error)
            # In pieces: the changes need not fit in memory.
            state.commit()
    finally:
        consumer.close()
