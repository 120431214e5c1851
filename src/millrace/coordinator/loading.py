"""Loading: a partition's log replayed into a new shard.

Most of such a log is out of date, since consumers commit the same few offsets over and over. Records of the
types that are said to supersede one another are therefore not decoded as they come: the newest of each key is
kept as it is, and only these are replayed when the end of the log is reached.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from itertools import islice

from millrace.coordinator.records import Origin, Schemas, decode_record, key_prefix
from millrace.coordinator.shard import Shard
from millrace.errors import KafkaError
from millrace.replication.partition import Partition
from millrace.wire.control_batch import read_end_marker
from millrace.wire.records import (
    CONTROL_BIT,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Record,
    iterate_records,
)

logger = logging.getLogger(__name__)

_PREFIX_BYTES = 2
_TRANSACTION_BITS = TRANSACTIONAL_BIT | CONTROL_BIT


class Loader:
    """Replays the batches of one partition, in their order, into one shard."""

    def __init__(
        self, shard: Shard, schemas: Schemas, superseding: Collection[int], partition: Partition
    ) -> None:
        """`superseding`: record types whose newest value for a key replaces all older ones."""
        self._partition = partition
        self._shard = shard
        self._schemas = schemas
        self._superseding = {key_prefix(record_type) for record_type in superseding}
        self._newest: dict[bytes, Record] = {}

    def take(self, header: BatchHeader, batch: memoryview) -> None:
        if header.attributes & _TRANSACTION_BITS:
            # A transaction's records take effect at its marker. Records before them are replayed first.
            self.replay_newest()
            self._take_transactional(header, batch)
            return
        newest, superseding = self._newest, self._superseding
        for record in iterate_records(batch, header):
            key = record.key
            if key is None:
                continue
            if key[:_PREFIX_BYTES] not in superseding:
                self._replay(record)
            elif record.value is not None:
                newest[key] = record
            else:
                # A deletion also reaches what open transactions are about to set.
                newest.pop(key, None)
                self._replay(record)

    def _take_transactional(self, header: BatchHeader, batch: memoryview) -> None:
        if header.is_control:
            marker = read_end_marker(batch)
            if marker is not None:
                self._shard.end_transaction(header.producer_id, header.producer_epoch, marker.committed)
            return
        for record in iterate_records(batch, header):
            self._replay(record, header.producer_id, header.producer_epoch)

    def replay_newest(self, most: int | None = None) -> bool:
        """Replay what has been held back, or some of it; returns whether there is more."""
        newest = self._newest
        for key in list(islice(newest, most)):
            self._replay(newest.pop(key))
        return bool(newest)

    def _replay(
        self, record: Record, producer_id: int = NO_PRODUCER_ID, producer_epoch: int = NO_PRODUCER_EPOCH
    ) -> None:
        if record.key is None:
            return
        try:
            decoded = decode_record(self._schemas, record.key, record.value)
            if decoded is not None:
                origin = Origin(record.offset, record.timestamp, producer_id, producer_epoch)
                self._shard.replay(decoded, origin)
        except KafkaError as error:
            logger.error(
                "%r: the record at offset %d is not readable: %s", self._partition, record.offset, error
            )
