"""Reads one partition, without a group."""

from collections.abc import Mapping

from confluent_kafka import TopicPartition

from millrace.cli.errors import CommandError, check
from millrace.cli.offsets import EARLIEST, LATEST, list_offsets
from millrace.cli.options import Target
from millrace.cli.reading import Reader
from millrace.errors import Error

# librdkafka wants a group even if it is never joined.
UNUSED_GROUP = "millrace-cli"


class PartitionReader(Reader):
    """A consumer of one partition, from an offset, the beginning or the end."""

    def __init__(
        self,
        target: Target,
        properties: Mapping[str, str],
        *,
        topic: str,
        partition: int,
        offset: int | None,
        from_beginning: bool,
    ) -> None:
        super().__init__(
            target,
            {
                "auto.offset.reset": "earliest" if from_beginning else "latest",
                **properties,
                "group.id": UNUSED_GROUP,
                "enable.auto.commit": "false",
                "enable.auto.offset.store": "false",
            },
        )
        if offset is None:
            offset = self._resolve(topic, partition, EARLIEST if from_beginning else LATEST)
        self._consumer.assign([TopicPartition(topic, partition, offset)])

    def look_around(self) -> bool:
        return True

    def _resolve(self, topic: str, partition: int, start: int) -> int:
        """The offset to start at; librdkafka would take half a second to find it out itself."""
        leader_id = self._leader(topic, partition)
        answer = list_offsets(self._client, {leader_id: [(topic, partition)]}, start)[topic, partition]
        check(answer.error_code)
        return answer.offset

    def _leader(self, topic: str, partition: int) -> int:
        for described in self._client.metadata([topic], create=True).topics:
            if described.error_code not in (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.LEADER_NOT_AVAILABLE):
                check(described.error_code)
            for found in described.partitions:
                if found.partition_index == partition and found.leader_id >= 0:
                    return found.leader_id
        raise CommandError(f"topic {topic} has no partition {partition}")
