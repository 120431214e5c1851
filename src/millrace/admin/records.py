"""Records: deletes the oldest ones of partitions."""

from collections.abc import Mapping

from millrace.admin.partitions import by_topic
from millrace.client import Client, Connection, Outcomes, TopicPartition
from millrace.wire.messages import delete_records as api

END = -1
"""Stands for the end of a partition: all its records are deleted."""


async def delete_records(
    client: Client, offsets: Mapping[TopicPartition, int]
) -> Outcomes[TopicPartition, int]:
    """Delete the records before these offsets; the value is the first offset that is left."""

    async def call(connection: Connection, partitions: list[TopicPartition]) -> Outcomes[TopicPartition, int]:
        request = api.DeleteRecordsRequest(
            topics=[
                api.DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        api.DeleteRecordsPartition(index, offsets[TopicPartition(topic, index)])
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(partitions).items()
            ],
            timeout_ms=client.timeout_ms,
        )
        outcomes: Outcomes[TopicPartition, int] = Outcomes()
        for result in (await connection.send(request, api.DeleteRecordsResponse)).topics:
            for partition in result.partitions:
                key = TopicPartition(result.name, partition.partition_index)
                outcomes.add(key, partition.low_watermark, partition.error_code)
        return outcomes

    return await client.call_leaders(offsets, call)
