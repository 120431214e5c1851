"""Loading skips superseded records, and reaches the same state as replaying everything."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.coordinator.loading import Loader
from millrace.coordinator.records import Origin, StateRecord, encode_key, encode_record
from millrace.groups.offsets import PLAIN_VERSION, CommittedOffset, TopicPartition, tombstone
from millrace.groups.shard import SCHEMAS, GroupShard
from millrace.replication.partition import Partition
from millrace.wire.control_batch import EndMarker, build_end_marker
from millrace.wire.messages.group_records import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey
from millrace.wire.records import TRANSACTIONAL_BIT, Record, build_batch, read_header

from ..node import Node

GROUPS, TOPIC = ("g", "h"), "t"
SUPERSEDING = [OffsetCommitKey.record_type]
OUTSIDE = -1

commits = st.tuples(st.sampled_from(GROUPS), st.integers(0, 1), st.none() | st.integers(0, 99))
plain_batches = st.tuples(st.just("append"), st.just(OUTSIDE), st.lists(commits, min_size=1, max_size=4))
transactional_batches = st.tuples(
    st.just("append"), st.integers(1, 2), st.lists(commits, min_size=1, max_size=4)
)
ends = st.tuples(st.sampled_from(["commit", "abort"]), st.integers(1, 2), st.just([]))
histories = st.lists(plain_batches | transactional_batches | ends, max_size=30)


class Noting(GroupShard):
    """A shard that counts what is replayed."""

    def __init__(self) -> None:
        super().__init__(0, lambda shard: None, lambda shard: None)
        self.replayed: list[int] = []

    def replay(self, record: StateRecord, origin: Origin) -> None:
        self.replayed.append(origin.offset)
        super().replay(record, origin)

    @property
    def committed(self) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        return {group: dict(self.offsets.of_group(group)) for group in GROUPS}


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Partition:
    directory: Path = tmp_path_factory.mktemp("node")
    cluster = Node(directory).open()
    cluster.create_topic(TOPIC, 1)
    return cluster.partitions.leader(TOPIC, 0)


def offset(group: str, index: int, committed: int | None) -> StateRecord:
    if committed is None:
        return tombstone(group, TOPIC, index)
    key = OffsetCommitKey(group=group, topic=TOPIC, partition=index)
    return StateRecord(key, CommittedOffset(committed, -1, "", 0), PLAIN_VERSION)


def batch(first_offset: int, records: list[StateRecord], producer_id: int = OUTSIDE) -> bytes:
    return build_batch(
        [Record(first_offset + number, 0, *encode_record(record)) for number, record in enumerate(records)],
        producer_id=producer_id,
        producer_epoch=-1 if producer_id == OUTSIDE else 0,
        attributes=0 if producer_id == OUTSIDE else TRANSACTIONAL_BIT,
    )


def load(partition: Partition, batches: list[bytes], superseding: list[int]) -> Noting:
    shard = Noting()
    loader = Loader(shard, SCHEMAS, superseding, partition)
    for content in batches:
        loader.take(read_header(content), memoryview(content))
    while loader.replay_newest(1):
        pass
    return shard


@given(history=histories)
def test_the_state_equals_that_of_replaying_everything(partition: Partition, history: list) -> None:
    batches, first_offset = [], 0
    for action, producer_id, changes in history:
        if action == "append":
            batches.append(batch(first_offset, [offset(*change) for change in changes], producer_id))
        else:
            batches.append(build_end_marker(EndMarker(action == "commit", 0), producer_id, 0, 0))
        first_offset += max(len(changes), 1)
    everything = load(partition, batches, [])
    newest = load(partition, batches, SUPERSEDING)
    assert newest.committed == everything.committed
    for group in GROUPS:
        assert newest.offsets.has_pending(group) == everything.offsets.has_pending(group)


def test_only_the_newest_commit_is_replayed(partition: Partition) -> None:
    batches = [batch(number, [offset("g", number % 2, number)]) for number in range(10)]
    shard = load(partition, batches, SUPERSEDING)
    assert shard.replayed == [8, 9]
    assert {index: kept.offset for (_, index), kept in shard.committed["g"].items()} == {0: 8, 1: 9}


def test_all_other_records_are_replayed(partition: Partition) -> None:
    value = GroupMetadataValue(protocol_type="consumer", protocol=None, leader=None)
    group = StateRecord(GroupMetadataKey(group="g"), value, 3)
    batches = [batch(number, [group, offset("g", 0, number)]) for number in (0, 2, 4)]
    assert load(partition, batches, SUPERSEDING).replayed == [0, 2, 4, 5]


def test_an_unreadable_record_is_skipped(partition: Partition, caplog: pytest.LogCaptureFixture) -> None:
    damaged = build_batch([Record(0, 0, encode_key(OffsetCommitKey(group="g", topic=TOPIC)), b"\x00\x63?")])
    shard = load(partition, [damaged, batch(1, [offset("g", 1, 7)])], SUPERSEDING)
    assert [index for _, index in shard.committed["g"]] == [1]
    assert "Partition(t-0): the record at offset 0 is not readable" in caplog.text
