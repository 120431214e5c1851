"""Reads one partition, without a group."""

from collections.abc import Mapping

from confluent_kafka import TopicPartition

from millrace.admin.offsets import EARLIEST, LATEST, list_offsets
from millrace.cli.console_consumer.reader import Reader
from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import Target
from millrace.client import TopicPartition as Partition
from millrace.errors import Error, KafkaError

# librdkafka requires a group, although it is never joined.
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
        """The offset to start at; librdkafka would take half a second to find it."""
        key = Partition(topic, partition)
        # The broker may create the topic.
        self._session.run(self._session.client.metadata([topic], create=True))
        try:
            found = self._session.run(list_offsets(self._session.client, {key: start}))[key]
        except KafkaError as error:
            if error.error is Error.UNKNOWN_TOPIC_OR_PARTITION:
                raise CommandError(f"topic {topic} has no partition {partition}") from None
            raise
        return found.offset or 0
