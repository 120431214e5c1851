"""The coordinators' runtime: decisions are durable, and loading replays them."""

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.clock import Clock
from millrace.coordinator.records import Origin, StateRecord
from millrace.coordinator.runtime import Runtime, java_hash, positive_hash
from millrace.disk import OpenFile
from millrace.errors import Error, KafkaError
from millrace.testing import ManualClock
from millrace.testing.disk import FaultyDisk
from millrace.testing.timers import ManualTimers
from millrace.wire.messages.group_records import OffsetCommitKey, OffsetCommitValue
from millrace.wire.records import Record, build_batch

from ..node import Node, OpenNode, finish

TOPIC = "__consumer_offsets"
SCHEMAS = {OffsetCommitKey.record_type: (OffsetCommitKey, OffsetCommitValue)}


class Counts:
    """A shard that keeps what it has replayed."""

    def __init__(self) -> None:
        self.offsets: dict[str, int] = {}
        self.origins: list[Origin] = []
        self.ended: list[tuple[int, int, bool]] = []
        self.is_loaded = False

    def replay(self, record: StateRecord, origin: Origin) -> None:
        assert isinstance(record.key, OffsetCommitKey)
        self.origins.append(origin)
        if record.value is None:
            del self.offsets[record.key.topic]
        else:
            assert isinstance(record.value, OffsetCommitValue)
            self.offsets[record.key.topic] = record.value.offset

    def end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        self.ended.append((producer_id, producer_epoch, committed))

    def loaded(self) -> None:
        self.is_loaded = True

    def unloaded(self) -> None:
        self.is_loaded = False


def runtime_of(cluster: OpenNode, shard: type[Counts] = Counts) -> Runtime[Counts]:
    """A runtime over the topic, elected for the partitions that the broker leads."""
    runtime = new_runtime(cluster, shard=shard)
    finish(runtime.ensure_topic())
    for partition in cluster.partitions.of_topic(TOPIC):
        runtime.elected(partition.index, partition.leader_epoch)
    return runtime


def new_runtime(
    cluster: OpenNode, timers: ManualTimers | None = None, shard: type[Counts] = Counts
) -> Runtime[Counts]:
    return Runtime(
        TOPIC,
        SCHEMAS,
        lambda index: shard(),
        partition_count=cluster.partition_count,
        partitions=cluster.partitions,
        create_topic=lambda: cluster.node.metadata.create_topic(TOPIC, 4),
        clock=Clock(),
        timers=ManualTimers(ManualClock()) if timers is None else timers,
    )


def commit(topic: str, offset: int | None) -> StateRecord:
    key = OffsetCommitKey(group="g", topic=topic, partition=0)
    value = None if offset is None else OffsetCommitValue(offset=offset, metadata="")
    return StateRecord(key, value, 3)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "data", disk=FaultyDisk())


@pytest.mark.parametrize(
    ("text", "hash_code"), [("", 0), ("a", 97), ("my-group", -1906497762), ("Grüße ☃ 🚀", -594740439)]
)
def test_keys_hash_as_in_java(text: str, hash_code: int) -> None:
    assert java_hash(text) == hash_code


def test_the_absolute_value_of_the_smallest_int_is_zero() -> None:
    assert java_hash("polygenelubricants") == -(2**31)
    assert positive_hash("polygenelubricants") == 0
    assert positive_hash("my-group") == 1906497762


def test_requests_wait_while_the_topic_is_being_created(node: Node) -> None:
    """Its metadata is visible before its partitions are led: no client may be sent there too early."""
    partitions = node.open().partitions
    created: list[int] = []
    runtime: Runtime[Counts]

    async def play() -> None:
        waiting = [asyncio.create_task(runtime.ensure_topic()) for _ in range(3)]
        while not created:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        are_led.set()
        await asyncio.gather(*waiting)
        await runtime.ensure_topic()

    async def create() -> None:
        created.append(4)
        await are_led.wait()

    are_led = asyncio.Event()
    runtime = Runtime(
        TOPIC,
        SCHEMAS,
        lambda index: Counts(),
        partition_count=lambda topic: sum(created) or None,
        partitions=partitions,
        create_topic=create,
        clock=Clock(),
        timers=ManualTimers(ManualClock()),
    )
    asyncio.run(play())
    assert created == [4]


def test_a_coordinator_is_not_available_before_its_topic_exists(node: Node) -> None:
    cluster = node.open()
    runtime = new_runtime(cluster)
    with pytest.raises(KafkaError) as missing:
        runtime.shard_of("g")
    assert missing.value.error is Error.COORDINATOR_NOT_AVAILABLE
    assert TOPIC not in cluster.topics
    assert runtime_of(cluster).shard_of("g").is_loaded
    assert cluster.topics[TOPIC].partitions == 4


def test_a_resigned_partition_is_no_longer_coordinated_and_loads_again_when_elected(node: Node) -> None:
    runtime = runtime_of(node.open())
    runtime.write("g", lambda shard: ([commit("a", 5)], None))
    index = runtime.partition_of("g")
    runtime.resigned(index)
    with pytest.raises(KafkaError) as resigned:
        runtime.shard_of("g")
    assert resigned.value.error is Error.NOT_COORDINATOR
    assert runtime.elected(index, 1)
    asyncio.run(runtime.load())
    assert runtime.shard_of("g").offsets == {"a": 5}


def test_a_decision_is_replayed_and_survives_a_kill(node: Node) -> None:
    runtime = runtime_of(node.open())
    assert runtime.write("g", lambda shard: ([commit("a", 5), commit("b", 7)], "done")).result() == "done"
    runtime.write("g", lambda shard: ([commit("a", shard.offsets["a"] + 1), commit("b", None)], None))
    assert runtime.shard_of("g").offsets == {"a": 6}

    again = runtime_of(node.reopen())
    with pytest.raises(KafkaError) as loading:
        again.shard_of("g")
    assert loading.value.error is Error.COORDINATOR_LOAD_IN_PROGRESS
    asyncio.run(again.load())
    assert again.shard_of("g").offsets == {"a": 6}
    assert again.shard_of("g").is_loaded
    assert not again.is_loading
    assert [origin.offset for origin in again.shard_of("g").origins] == [0, 1, 2, 3]


def test_keys_are_spread_by_the_topics_partition_count_not_by_the_config(node: Node) -> None:
    cluster = node.open()
    cluster.create_topic(TOPIC, 7)
    assert {runtime_of(cluster).partition_of(str(number)) for number in range(200)} == set(range(7))


def test_a_topic_that_a_client_created_first_decides_the_spread_of_keys(node: Node) -> None:
    cluster = node.open()
    runtime = new_runtime(cluster)
    cluster.create_topic(TOPIC, 7)
    assert {runtime.partition_of(str(number)) for number in range(200)} == set(range(7))


# Error codes are numbers too, but lower than this.
OFFSETS = {f"key {number}": 1000 + number for number in range(40)}
LOST = 2


def write(runtime: Runtime[Counts], key: str) -> None:
    runtime.write(key, lambda shard: ([commit(key, OFFSETS[key])], None))


def write_all(runtime: Runtime[Counts]) -> None:
    for key in OFFSETS:
        write(runtime, key)


def found(runtime: Runtime[Counts]) -> dict[str, int | Error]:
    """The offset written under each key, or the error returned instead."""
    results: dict[str, int | Error] = {}
    for key in OFFSETS:
        try:
            results[key] = runtime.shard_of(key).offsets[key]
        except KafkaError as error:
            results[key] = error.error
    return results


def all_but_the_lost() -> dict[str, int | Error]:
    return {
        key: Error.NOT_COORDINATOR if positive_hash(key) % 4 == LOST else offset
        for key, offset in OFFSETS.items()
    }


def test_a_partition_that_cannot_be_opened_costs_only_its_own_keys(node: Node) -> None:
    write_all(runtime_of(node.open()))
    node.kill()
    checkpoint = node.directories[0] / f"{TOPIC}-{LOST}" / "leader-epoch-checkpoint"
    checkpoint.unlink()
    # A directory cannot be read as a file, not even by root.
    checkpoint.mkdir()

    runtime = runtime_of(node.open())
    asyncio.run(runtime.load())
    assert found(runtime) == all_but_the_lost()
    assert not runtime.is_loading
    with pytest.raises(KafkaError, match="cannot be opened"):
        runtime.shard(LOST)
    # New state of the other keys goes to their own partitions.
    runtime.write("key 0", lambda shard: ([commit("key 0", 5000)], None))

    node.kill()
    checkpoint.rmdir()
    repaired = runtime_of(node.open())
    asyncio.run(repaired.load())
    assert found(repaired) == OFFSETS | {"key 0": 5000}


def lengthen_the_first_batch(content: bytearray) -> None:
    content[8] |= 0x40


def shorten_the_first_batch(content: bytearray) -> None:
    content[8:12] = bytes(4)


def break_the_first_record(content: bytearray) -> None:
    content[61:64] = b"\xff" * 3


@pytest.mark.parametrize(
    "damage", [lengthen_the_first_batch, shorten_the_first_batch, break_the_first_record]
)
def test_a_partition_that_cannot_be_replayed_costs_only_its_own_keys(
    node: Node, damage: Callable[[bytearray], None], caplog: pytest.LogCaptureFixture
) -> None:
    write_all(runtime_of(node.open()))
    runtime = runtime_of(node.reopen())
    (segment,) = (node.directories[0] / f"{TOPIC}-{LOST}").glob("*.log")
    content = bytearray(segment.read_bytes())
    damage(content)
    segment.write_bytes(content)

    asyncio.run(asyncio.wait_for(runtime.load(), 10))
    assert found(runtime) == all_but_the_lost()
    assert not runtime.is_loading
    assert f"cannot load {TOPIC}-{LOST}" in caplog.text


class LosingDisk(FaultyDisk):
    """A disk on which the files of one partition cannot be created."""

    def open_for_append(self, path: Path, *, create: bool = False) -> OpenFile:
        if create and path.parent.name == f"{TOPIC}-{LOST}":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().open_for_append(path, create=create)


def test_a_partition_that_cannot_be_created_costs_only_its_own_keys(tmp_path: Path) -> None:
    runtime = runtime_of(Node(tmp_path / "data", disk=LosingDisk()).open())
    expected = all_but_the_lost()
    for key in OFFSETS:
        if expected[key] is Error.NOT_COORDINATOR:
            with pytest.raises(KafkaError) as refused:
                write(runtime, key)
            assert refused.value.error is Error.NOT_COORDINATOR
        else:
            write(runtime, key)
    assert found(runtime) == expected


def test_a_decision_that_cannot_be_written_changes_nothing(node: Node) -> None:
    assert isinstance(node.disk, FaultyDisk)
    runtime = runtime_of(node.open())
    runtime.write("g", lambda shard: ([commit("a", 5)], None))
    node.disk.fail_next_write()
    with pytest.raises(KafkaError) as failed:
        runtime.write("g", lambda shard: ([commit("a", 6)], None))
    assert failed.value.error is Error.NOT_COORDINATOR
    assert runtime.shard_of("g").offsets == {"a": 5}
    runtime.write("g", lambda shard: ([commit("a", 7)], None))
    assert runtime.shard_of("g").offsets == {"a": 7}


def test_a_decision_without_records_writes_nothing(node: Node) -> None:
    cluster = node.open()
    runtime = runtime_of(cluster)
    assert runtime.write("g", lambda shard: ([], 42)).result() == 42
    assert sum(partition.log.log_end_offset for partition in cluster.partitions.of_topic(TOPIC)) == 0


def test_unknown_records_are_skipped(node: Node) -> None:
    cluster = node.open()
    runtime = runtime_of(cluster)
    runtime.write("g", lambda shard: ([commit("a", 5)], None))
    partition = cluster.partitions.leader(TOPIC, runtime.partition_of("g"))
    strange = [
        Record(0, 0, b"\x03\xe7from the future", b"?"),
        Record(1, 0, b"\x00\x01torn", b"\x00"),
        Record(2, 0, b"", b""),
    ]
    partition.append_as_leader(memoryview(build_batch(strange)))
    runtime.write("g", lambda shard: ([commit("b", 6)], None))
    again = runtime_of(node.reopen())
    asyncio.run(again.load())
    assert again.shard_of("g").offsets == {"a": 5, "b": 6}


def test_ends_of_transactions_reach_the_shard(node: Node) -> None:
    cluster = node.open()
    runtime = runtime_of(cluster)
    shard = runtime.shard_of("g")
    watching = cluster.partitions.leader(TOPIC, runtime.partition_of("g")).on_marker
    assert watching is not None
    watching(9, 1, True)
    assert shard.ended == [(9, 1, True)]


class Choking(Counts):
    """A shard with a bug: it cannot replay one of the keys."""

    def replay(self, record: StateRecord, origin: Origin) -> None:
        assert isinstance(record.key, OffsetCommitKey)
        if record.key.topic == next(key for key in OFFSETS if positive_hash(key) % 4 == LOST):
            raise ValueError("not expected")
        super().replay(record, origin)


def test_a_bug_in_the_replay_of_one_partition_does_not_keep_the_others_from_loading(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    write_all(runtime_of(node.open()))
    runtime = runtime_of(node.reopen(), Choking)
    asyncio.run(asyncio.wait_for(runtime.load(), 10))
    assert found(runtime) == all_but_the_lost()
    assert not runtime.is_loading
    assert f"cannot load {TOPIC}-{LOST}: not expected" in caplog.text


def test_long_keys_hash_as_in_java_and_are_not_remembered() -> None:
    def slowly(text: str) -> int:
        value = 0
        for unit in memoryview(text.encode("utf-16-le")).cast("H"):
            value = (31 * value + unit) & 0xFFFFFFFF
        return value - (1 << 32) if value >= 1 << 31 else value

    for length in (0, 1, 255, 256, 1023, 1024, 1025, 2048, 5000):
        text = "grüße 🚀" * (length // 7) + "x" * (length % 7)
        assert java_hash(text) == slowly(text)
        assert positive_hash(text) == abs(slowly(text))
