"""The state that another coordinator finds in a log."""

from collections.abc import Collection
from typing import TypeVar

from millrace.coordinator.loading import Loader
from millrace.coordinator.records import Schemas
from millrace.coordinator.shard import Shard
from millrace.replication.partition import Partition

from ..storage.log_state import batches_of

S = TypeVar("S", bound=Shard)


def replay(partition: Partition, shard: S, schemas: Schemas, superseding: Collection[int] = ()) -> S:
    """Replay the whole log of a partition into a new shard, as loading does."""
    loader = Loader(shard, schemas, superseding, partition)
    for header, batch in batches_of(partition.log):
        loader.take(header, batch)
    while loader.replay_newest():
        pass
    return shard
