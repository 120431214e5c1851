"""Carries transaction markers to the leaders of partitions: here to those that this broker leads."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from millrace.deferred import Deferred
from millrace.errors import Error, KafkaError
from millrace.replication.hosted_partitions import HostedPartitions
from millrace.txn.transaction_state import TopicPartition


class Marker(NamedTuple):
    """The end of a producer's transaction."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int


class MarkerChannel(Protocol):
    """Writes markers to partitions, whichever broker leads them."""

    def write(self, partition: TopicPartition, marker: Marker) -> Deferred[None]:
        """Resolves when the marker is committed.

        Fails with UNKNOWN_TOPIC_OR_PARTITION if there is no such partition, so that it needs no marker, and
        with NOT_LEADER_OR_FOLLOWER if its leader has to be looked for again.
        """


class LocalMarkerChannel:
    """Writes to the partitions that this broker leads. Owned by the broker loop; not thread-safe."""

    __slots__ = ("_partitions",)

    def __init__(self, partitions: HostedPartitions) -> None:
        self._partitions = partitions

    def write(self, partition: TopicPartition, marker: Marker) -> Deferred[None]:
        try:
            led = self._partitions.leader(*partition)
            if led.lacks_replicas:
                raise KafkaError(Error.NOT_ENOUGH_REPLICAS)
            offset = led.write_marker(
                marker.producer_id,
                marker.producer_epoch,
                marker.committed,
                marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
        except KafkaError as error:
            return Deferred.failing(error)
        return led.committed(offset + 1)
