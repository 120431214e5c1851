"""Log directories of brokers: the size of every replica on disk."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from millrace.client import Client, Connection, Outcomes, TopicPartition
from millrace.errors import Error, check, error_of
from millrace.wire.messages import describe_log_dirs as api


class LogDirReplica(NamedTuple):
    """A replica in a log directory; `is_future` if it will replace the one in another directory."""

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log directory; `error` is None while it works. Old brokers do not tell the size of the volume."""

    path: str
    error: Error | None
    replicas: tuple[LogDirReplica, ...]
    total_bytes: int | None
    usable_bytes: int | None


async def describe_log_dirs(client: Client, broker_ids: Iterable[int]) -> Outcomes[int, list[LogDir]]:
    """The log directories of these brokers."""

    async def call(connection: Connection, broker_ids: list[int]) -> Outcomes[int, list[LogDir]]:
        request = api.DescribeLogDirsRequest(topics=None)
        response = await connection.send(request, api.DescribeLogDirsResponse)
        check(response.error_code)
        return Outcomes({broker_id: list(map(_log_dir, response.results)) for broker_id in broker_ids})

    return await client.call_brokers(broker_ids, call)


def _log_dir(result: api.DescribeLogDirsResult) -> LogDir:
    return LogDir(
        path=result.log_dir,
        error=None if result.error_code == Error.NONE else error_of(result.error_code),
        replicas=tuple(
            LogDirReplica(
                TopicPartition(topic.name, partition.partition_index),
                partition.partition_size,
                partition.offset_lag,
                partition.is_future_key,
            )
            for topic in result.topics
            for partition in topic.partitions
        ),
        total_bytes=None if result.total_bytes < 0 else result.total_bytes,
        usable_bytes=None if result.usable_bytes < 0 else result.usable_bytes,
    )
