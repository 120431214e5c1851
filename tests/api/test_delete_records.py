"""DeleteRecords: moves a log's start."""

import errno
import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from millrace.disk import Disk
from millrace.errors import Error
from millrace.storage.log_dir import LOG_START_OFFSET_FILE
from millrace.testing import Broker, FaultyDisk
from millrace.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

from ..node import Node, create_topic
from ..records import batch
from .api import Api
from .conftest import Call


def before(offset: int, topic: str = "orders") -> DeleteRecordsRequest:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])])


def fill(api: Api, topic: str = "orders", **configs: str) -> None:
    create_topic(api, topic, 1, configs={key.replace("_", "."): text for key, text in configs.items()})
    for _ in range(10):
        api.partitions.leader(topic, 0).append_as_leader(memoryview(batch(b"value")))


@pytest.mark.parametrize(
    ("offset", "low_watermark", "error"),
    [
        (4, 4, Error.NONE),
        (0, 0, Error.NONE),
        (10, 10, Error.NONE),
        (-1, 10, Error.NONE),
        (11, -1, Error.OFFSET_OUT_OF_RANGE),
        (-2, -1, Error.OFFSET_OUT_OF_RANGE),
    ],
)
def test_the_start_moves_to_the_offset(
    call: Call, api: Api, offset: int, low_watermark: int, error: Error
) -> None:
    fill(api)
    (topic,) = call(before(offset)).topics
    (partition,) = topic.partitions
    assert (partition.low_watermark, partition.error_code) == (low_watermark, error)
    assert api.partitions.leader("orders", 0).log.log_start_offset == max(low_watermark, 0)


def test_the_start_never_moves_back(call: Call, api: Api) -> None:
    fill(api)
    call(before(6))
    (partition,) = call(before(2)).topics[0].partitions
    assert (partition.low_watermark, partition.error_code) == (6, Error.NONE)


def test_deleted_records_stay_deleted_after_a_kill(call: Call, api: Api, node: Node) -> None:
    fill(api)
    call(before(6))
    assert node.reopen().partitions.leader("orders", 0).log.log_start_offset == 6


def test_compacted_topics_are_protected_by_policy(call: Call, api: Api) -> None:
    create_topic(api, "compacted", 1, configs={"cleanup.policy": "compact"})
    (partition,) = call(before(0, "compacted")).topics[0].partitions
    assert partition.error_code == Error.POLICY_VIOLATION


def test_internal_and_unknown_topics_are_refused(call: Call, api: Api) -> None:
    create_topic(api, "__consumer_offsets", 1)
    for topic, error in (
        ("__consumer_offsets", Error.INVALID_TOPIC_EXCEPTION),
        ("none", Error.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        (partition,) = call(before(0, topic)).topics[0].partitions
        assert (partition.error_code, partition.low_watermark) == (error, -1)


def test_a_full_disk_does_not_keep_records_from_being_deleted(
    call: Call, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(api)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Disk, "write", refuse)
    (partition,) = call(before(6)).topics[0].partitions
    assert (partition.low_watermark, partition.error_code) == (6, Error.NONE)


def test_the_response_waits_for_the_disk_and_other_clients_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    began, released = threading.Event(), threading.Event()
    replace = FaultyDisk.replace

    def wait_and_replace(disk: FaultyDisk, path: Path, content: bytes, *, durable: bool = True) -> None:
        if path.name == LOG_START_OFFSET_FILE:
            began.set()
            assert released.wait(20)
        replace(disk, path, content, durable=durable)

    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for _ in range(3):
            producer.produce("orders", b"value")
        assert producer.flush(20) == 0
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        monkeypatch.setattr(FaultyDisk, "replace", wait_and_replace)
        start = TopicPartition("orders", 0, 2)
        deleted = admin.delete_records([start])[start]
        assert began.wait(20)
        producer.produce("orders", b"value")
        assert producer.flush(20) == 0, "the loop waits for the disk"
        assert not deleted.done(), "the response came before the disk"
        released.set()
        assert deleted.result(20).low_watermark == 2
        broker.kill9()
        broker.start()
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none"})
        assert consumer.get_watermark_offsets(TopicPartition("orders", 0), 20) == (2, 4)
        consumer.close()
