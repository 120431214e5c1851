"""A single broker's metadata: creating, changing and deleting topics, also across restarts."""

import asyncio
import errno
import json
import logging
import shutil
from pathlib import Path

import pytest

from millrace.cluster.file_store import FileStore
from millrace.cluster.image import ALL_BROKERS
from millrace.config import BrokerConfig, ConfigError
from millrace.errors import Error, KafkaError
from millrace.storage.log_dir import LogDir
from millrace.testing.disk import FaultyDisk

from ..node import Node, OpenNode, finish
from ..records import batch


def refused(error: Error, message: str | None = None) -> "pytest.RaisesExc[KafkaError]":
    return pytest.raises(KafkaError, match=message, check=lambda raised: raised.error is error)


def partitions_of(cluster: OpenNode, topic: str) -> list[int]:
    return [partition.index for partition in cluster.partitions.of_topic(topic)]


# Creating


def test_a_new_topic_exists_at_once_and_after_a_restart(node: Node) -> None:
    created = node.open().create_topic("orders", 3, configs={"retention.ms": "1000"})
    cluster = node.reopen()
    topic = cluster.topics["orders"]
    assert topic == created
    assert cluster.image.by_id[topic.topic_id] is topic
    assert partitions_of(cluster, "orders") == [0, 1, 2]
    assert cluster.log_config("orders").retention_ms == 1000
    assert cluster.partitions.leader("orders", 0).log.config.retention_ms == 1000


def test_missing_counts_are_the_brokers_defaults(node: Node) -> None:
    cluster = node.open({"num.partitions": "4", "default.replication.factor": "3"})
    assert cluster.create_topic("orders").partitions == 4


@pytest.mark.parametrize(
    ("partitions", "factor", "error"),
    [
        (0, 1, Error.INVALID_PARTITIONS),
        (-2, 1, Error.INVALID_PARTITIONS),
        (10_001, 1, Error.POLICY_VIOLATION),
        (1, 0, Error.INVALID_REPLICATION_FACTOR),
        (1, 2, Error.INVALID_REPLICATION_FACTOR),
    ],
)
def test_impossible_counts_are_refused(cluster: OpenNode, partitions: int, factor: int, error: Error) -> None:
    with refused(error):
        cluster.create_topic("orders", partitions, factor)
    assert not cluster.topics


def test_existing_or_colliding_names_are_rejected(cluster: OpenNode) -> None:
    cluster.create_topic("a.b", 1)
    with refused(Error.TOPIC_ALREADY_EXISTS, "Topic 'a.b' already exists."):
        cluster.create_topic("a.b", 1)
    with refused(Error.INVALID_TOPIC_EXCEPTION, "Topic 'a_b' collides with existing topic: a.b"):
        cluster.create_topic("a_b", 1)
    cluster.delete_topic(cluster.image.topic("a.b"))
    cluster.create_topic("a_b", 1)


def test_a_bad_config_is_refused(cluster: OpenNode) -> None:
    with refused(Error.INVALID_CONFIG, "Unknown topic config name: nope"):
        cluster.create_topic("orders", 1, configs={"nope": "1"})


def test_assignments_give_the_number_of_partitions(cluster: OpenNode) -> None:
    assert cluster.create_topic("orders", assignments={0: [1], 1: [1]}).partitions == 2
    with refused(Error.INVALID_REQUEST, "numPartitions was not set to -1"):
        cluster.create_topic("more", 2, assignments={0: [1], 1: [1]})


def test_validating_creates_nothing(cluster: OpenNode, node: Node) -> None:
    assert cluster.create_topic("orders", 3, validate_only=True).partitions == 3
    assert not cluster.topics
    assert not node.reopen().topics


def test_a_full_disk_rejects_the_topic_and_leaves_nothing_behind(tmp_path: Path) -> None:
    disk = FaultyDisk()
    node = Node(tmp_path / "data", disk=disk)
    cluster = node.open()
    disk.fail_next_write()
    with refused(Error.KAFKA_STORAGE_ERROR):
        cluster.create_topic("orders", 1)
    assert not cluster.topics
    assert cluster.create_topic("orders", 1)
    assert list(node.reopen().topics) == ["orders"]
    node.kill()


# Adding partitions


def test_added_partitions_stay(node: Node) -> None:
    cluster = node.open()
    cluster.create_topic("orders", 1)
    cluster.add_partitions("orders", 3, None)
    assert partitions_of(cluster, "orders") == [0, 1, 2]
    assert partitions_of(node.reopen(), "orders") == [0, 1, 2]


@pytest.mark.parametrize(
    ("count", "assignments", "error", "message"),
    [
        (3, None, Error.INVALID_PARTITIONS, "already has 3 partition"),
        (2, None, Error.INVALID_PARTITIONS, "currently has 3 partition.* 2 would not be an increase"),
        (5, [[1]], Error.INVALID_REPLICA_ASSIGNMENT, "add 2 additional partition.* only 1 assignment"),
        (4, [[7]], Error.INVALID_REPLICA_ASSIGNMENT, "no such broker"),
    ],
)
def test_impossible_additions_are_refused(
    cluster: OpenNode, count: int, assignments: list[list[int]] | None, error: Error, message: str
) -> None:
    cluster.create_topic("orders", 3)
    with refused(error, message):
        cluster.add_partitions("orders", count, assignments)
    with refused(Error.UNKNOWN_TOPIC_OR_PARTITION):
        cluster.add_partitions("none", 2, None)


# Deleting


def test_a_deleted_topic_is_gone_with_its_files(node: Node) -> None:
    cluster = node.open()
    topic = cluster.create_topic("orders", 2)
    cluster.delete_topic(topic)
    assert topic.topic_id not in cluster.image.by_id
    with refused(Error.UNKNOWN_TOPIC_OR_PARTITION):
        cluster.partitions.leader("orders", 0)
    assert not node.reopen().topics
    assert not list(node.directories[0].glob("orders-*"))


def test_a_name_can_be_used_again_under_a_new_id(cluster: OpenNode) -> None:
    first = cluster.create_topic("orders", 1)
    cluster.delete_topic(first)
    assert cluster.create_topic("orders", 1).topic_id != first.topic_id


def test_a_topic_whose_log_cannot_be_opened_can_be_deleted_and_leaves_nothing(node: Node) -> None:
    node.open().create_topic("orders", 1)
    directory = node.directories[0] / "orders-0"
    log = directory / f"{0:020d}.log"
    log.unlink()
    log.mkdir()
    (log / "in the way").touch()
    cluster = node.reopen()
    assert cluster.partitions.offline_reason("orders", 0)
    cluster.delete_topic(cluster.topics["orders"])
    assert not directory.exists()
    new = cluster.create_topic("orders", 1)
    assert cluster.partitions.leader("orders", 0).topic_id == new.topic_id


def test_a_topic_whose_directory_is_missing_can_be_deleted(node: Node) -> None:
    cluster = node.open()
    topic = cluster.create_topic("orders", 2)
    shutil.rmtree(node.directories[0] / "orders-0")
    cluster.delete_topic(topic)
    assert not node.reopen().topics
    assert not list(node.directories[0].glob("orders-*"))


def test_a_topic_inherits_no_records_of_a_deleted_one_whose_directory_could_not_be_removed(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = node.open()
    old = cluster.create_topic("orders", 2)
    for index in range(2):
        cluster.partitions.leader("orders", index).append_as_leader(memoryview(batch(b"old")))
    rename = node.disk.rename

    def fail_once(source: Path, target: Path) -> None:
        if source.name == "orders-0":
            monkeypatch.undo()
            raise PermissionError(errno.EACCES, "Permission denied")
        rename(source, target)

    monkeypatch.setattr(type(node.disk), "rename", lambda _, source, target: fail_once(source, target))
    with refused(Error.KAFKA_STORAGE_ERROR):
        cluster.delete_topic(old)
    assert not cluster.topics
    assert not (node.directories[0] / "orders-1").exists()
    cluster.create_topic("orders", 1)
    assert cluster.partitions.leader("orders", 0).high_watermark == 0
    assert node.reopen().partitions.leader("orders", 0).high_watermark == 0


def test_deleting_can_be_switched_off(node: Node) -> None:
    cluster = node.open({"delete.topic.enable": "false"})
    with refused(Error.TOPIC_DELETION_DISABLED):
        cluster.delete_topic(cluster.create_topic("orders", 1))


# After a kill


def test_missing_directories_are_created_at_the_next_start(node: Node) -> None:
    node.open().create_topic("orders", 2)
    node.kill()
    (directory,) = node.directories
    for file in (directory / "orders-1").iterdir():
        file.unlink()
    (directory / "orders-1").rmdir()
    assert partitions_of(node.open(), "orders") == [0, 1]


def test_an_interrupted_deletion_is_finished_at_the_next_start(node: Node) -> None:
    node.open().create_topic("orders", 2)
    node.kill()
    (file,) = (node.directories[0] / "metadata" / "topics").glob("*.json")
    file.rename(file.with_suffix(".deleting"))
    assert not node.open().topics
    assert not list(node.directories[0].glob("orders-*"))
    assert not list((node.directories[0] / "metadata" / "topics").iterdir())


def test_a_directory_without_a_topic_is_set_aside(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.open().create_topic("orders", 1)
    node.kill()
    (directory,) = node.directories
    (directory / "lost-0").mkdir()
    (directory / "lost-0" / "keep.me").write_text("precious")
    cluster = node.open()
    assert list(cluster.topics) == ["orders"]
    (stray,) = directory.glob("lost-0.*-stray")
    assert (stray / "keep.me").read_text() == "precious"
    assert "lost-0 belongs to no topic; it is kept as" in caplog.text
    cluster.create_topic("lost", 1)
    assert list(node.reopen().topics) == ["lost", "orders"]


def test_a_directory_without_metadata_is_taken_over(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    topic = node.open().create_topic("orders", 2)
    node.kill()
    (directory,) = node.directories
    for file in (directory / "metadata" / "topics").iterdir():
        file.unlink()
    (directory / "metadata" / "topics").rmdir()
    (directory / "__cluster_metadata-0").mkdir()
    cluster = node.open()
    assert cluster.topics == {"orders": topic}
    assert "took over topic orders with 2 partitions" in caplog.text
    assert (directory / "__cluster_metadata-0").exists()


def test_a_damaged_topic_file_is_named(node: Node) -> None:
    node.open().create_topic("orders", 1)
    node.kill()
    (file,) = (node.directories[0] / "metadata" / "topics").glob("*.json")
    file.write_text("{")
    with pytest.raises(OSError, match=rf"{file.name} cannot be read .*; repair or remove it"):
        node.open()


def test_topic_files_can_be_read_by_people(node: Node) -> None:
    node.open().create_topic("orders", 2, configs={"cleanup.policy": "compact"})
    (file,) = (node.directories[0] / "metadata" / "topics").glob("*.json")
    content = json.loads(file.read_text())
    assert content["name"] == "orders"
    assert content["partitions"] == 2
    assert content["configs"] == {"cleanup.policy": "compact"}


# The owner of a directory


def test_the_cluster_id_stays(node: Node) -> None:
    cluster_id = node.open().image.cluster_id
    assert len(cluster_id) == 22
    assert node.reopen().image.cluster_id == cluster_id


def test_another_brokers_directory_is_refused(node: Node) -> None:
    node.open({"node.id": "1"})
    with pytest.raises(ConfigError, match=r"belongs to broker 1 .* but this is broker 2; set node\.id=1 or"):
        node.reopen({"node.id": "2"})


def test_a_broker_without_a_number_takes_the_number_of_its_directory(node: Node) -> None:
    node.open({"broker.id": "7"})
    assert node.reopen().config.node_id == 7


def test_directories_of_two_clusters_are_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        single = Node(tmp_path / name)
        single.open()
        single.kill()
    with pytest.raises(ConfigError, match=r"log\.dirs must name directories of one broker"):
        Node(tmp_path / "one", tmp_path / "two").open()


def test_topics_spread_over_several_directories_are_found_again(tmp_path: Path) -> None:
    node = Node(tmp_path / "one", tmp_path / "two")
    node.open().create_topic("orders", 4)
    cluster = node.reopen()
    assert partitions_of(cluster, "orders") == [0, 1, 2, 3]
    for log_dir in cluster.partitions.log_dirs:
        assert len(cluster.partitions.in_dir(log_dir)) == 2
    node.kill()


# Configs


def test_topic_configs_take_effect_at_once_and_stay(node: Node) -> None:
    cluster = node.open()
    cluster.create_topic("orders", 1)
    cluster.set_topic_configs("orders", {"segment.bytes": "2000"})
    assert cluster.partitions.leader("orders", 0).log.config.segment_bytes == 2000
    assert node.reopen().topics["orders"].configs == {"segment.bytes": "2000"}


def test_broker_configs_reach_the_logs_at_once_and_stay(node: Node) -> None:
    cluster = node.open({"log.retention.hours": "1"})
    cluster.create_topic("orders", 1)
    cluster.create_topic("fixed", 1, configs={"retention.ms": "5"})
    cluster.set_broker_configs(ALL_BROKERS, {"log.retention.ms": "7000"})
    assert cluster.partitions.leader("orders", 0).log.config.retention_ms == 7000
    assert cluster.partitions.leader("fixed", 0).log.config.retention_ms == 5
    cluster.set_broker_configs("1", {"log.retention.ms": "3000"})
    cluster = node.reopen({"log.retention.hours": "1"})
    assert cluster.partitions.leader("orders", 0).log.config.retention_ms == 3000
    cluster.set_broker_configs("1", {})
    cluster.set_broker_configs(ALL_BROKERS, {})
    assert cluster.partitions.leader("orders", 0).log.config.retention_ms == 3_600_000


def test_broker_configs_that_break_a_topic_are_refused(cluster: OpenNode) -> None:
    cluster.create_topic("orders", 1, configs={"min.compaction.lag.ms": "1000"})
    with refused(Error.INVALID_CONFIG, "min.compaction.lag.ms"):
        cluster.set_broker_configs(ALL_BROKERS, {"log.cleaner.max.compaction.lag.ms": "10"})
    assert cluster.log_config("orders").max_compaction_lag_ms > 1000
    assert ALL_BROKERS not in cluster.image.broker_configs


def test_each_change_of_topics_is_logged(cluster: OpenNode, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    topic = cluster.create_topic("orders", 1)
    cluster.add_partitions("orders", 2, None)
    cluster.delete_topic(topic)
    assert "created topic orders with 1 partitions" in caplog.text
    assert "raised topic orders from 1 to 2 partitions" in caplog.text
    assert "deleted topic orders" in caplog.text


def test_a_topic_does_not_inherit_the_start_offset_of_a_stray_of_its_name(node: Node) -> None:
    cluster = node.open()
    cluster.create_topic("orders", 1)
    cluster.create_topic("other", 1)
    partition = cluster.partitions.leader("orders", 0)
    for _ in range(5):
        partition.append_as_leader(memoryview(batch(b"value")))
    partition.log.delete_records_before(3)
    for write in cluster.partitions.moved_log_starts([partition]):
        write()
    node.kill()
    (file,) = (
        path
        for path in (node.directories[0] / "metadata" / "topics").iterdir()
        if json.loads(path.read_text())["name"] == "orders"
    )
    file.unlink()
    cluster = node.open()
    cluster.create_topic("orders", 1)
    assert cluster.partitions.leader("orders", 0).log.log_start_offset == 0


# Configs of groups


def test_configs_of_groups_outlive_a_restart(node: Node) -> None:
    opened = node.open()
    finish(opened.node.metadata.set_group_configs("readers", {"consumer.session.timeout.ms": "50000"}))
    finish(opened.node.metadata.set_group_configs("gone", {"consumer.session.timeout.ms": "50000"}))
    finish(opened.node.metadata.set_group_configs("gone", {}))
    reopened = node.reopen()
    assert reopened.image.group_configs == {"readers": {"consumer.session.timeout.ms": "50000"}}


class CountingDisk(FaultyDisk):
    """A disk that counts the files that are replaced, and may fail to replace one."""

    __slots__ = ("fails_at", "replaced")

    def __init__(self) -> None:
        super().__init__()
        self.replaced = 0
        self.fails_at = -1

    def replace(self, path: Path, content: bytes, *, durable: bool = True, mode: int = 0o644) -> None:
        self.replaced += 1
        if self.replaced == self.fails_at:
            raise OSError(errno.EIO, "Input/output error")
        super().replace(path, content, durable=durable, mode=mode)


def file_store(directory: Path, disk: CountingDisk) -> FileStore:
    return FileStore(
        BrokerConfig(),
        LogDir(directory, disk),
        "cluster",
        run_in_thread=lambda work: asyncio.ensure_future(asyncio.to_thread(work)),
        adopt=lambda: [],
    )


async def test_configs_of_many_groups_are_written_together(tmp_path: Path) -> None:
    disk = CountingDisk()
    store = file_store(tmp_path, disk)
    disk.replaced = 0
    settings = {"consumer.session.timeout.ms": "50000"}
    groups = [f"group-{number}" for number in range(500)]
    await asyncio.gather(*(store.set_group_configs(group, settings) for group in groups))
    assert disk.replaced <= 2
    assert dict(store.image.group_configs) == dict.fromkeys(groups, settings)
    await store.set_group_configs(groups[0], settings)
    assert disk.replaced <= 2, "nothing has changed"


async def test_a_failed_write_fails_all_changes_that_were_written_together(tmp_path: Path) -> None:
    disk = CountingDisk()
    store = file_store(tmp_path, disk)
    disk.fails_at = disk.replaced + 2
    settings = {"consumer.session.timeout.ms": "50000"}
    changes = (store.set_group_configs(f"group-{number}", settings) for number in range(5))
    first, *others = await asyncio.gather(*changes, return_exceptions=True)
    assert first is None
    assert [getattr(failure, "error", None) for failure in others] == [Error.KAFKA_STORAGE_ERROR] * 4
    assert list(store.image.group_configs) == ["group-0"]
