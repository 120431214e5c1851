"""One directory, two brokers: Apache Kafka and we read, verify and continue each other's logs."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.config import LogConfig
from millrace.jars import JarsUnavailable, apache_kafka_classpath
from millrace.storage.log import Log
from millrace.testing.apache_kafka import ApacheKafka
from millrace.wire.compression import Codec
from millrace.wire.records import Record, build_batch, check_batch, iterate_batches, iterate_records

from .. import jvm

pytestmark = [pytest.mark.java, pytest.mark.slow]

TOPIC = "shared"
CONFIG = {"segment.bytes": "1048576", "index.interval.bytes": "100"}


def produce_with_every_codec(bootstrap: str) -> int:
    sent = 0
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "enable.idempotence": True,
                "linger.ms": 0,
            }
        )
        for _ in range(20):
            for _ in range(10):
                producer.produce(TOPIC, key=b"%d" % sent, value=b"value %d " % sent * 10, partition=0)
                sent += 1
            producer.flush()
    return sent


def consume(bootstrap: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    keys: list[bytes] = []
    while len(keys) < count:
        messages = consumer.consume(count - len(keys), timeout=10)
        assert messages
        keys += [message.key() for message in messages]
    consumer.close()
    return keys


def stored_keys(log: Log) -> list[bytes | None]:
    keys = []
    offset = 0
    while (piece := log.read(offset, 100_000, min_one_batch=True)) is not None:
        for header, batch in iterate_batches(piece.read()):
            check_batch(batch)
            keys += [record.key for record in iterate_records(batch)]
            offset = header.next_offset
    return keys


def test_a_log_goes_from_one_broker_to_the_other_and_back(open_log, clock, tmp_path: Path, caplog):
    try:
        apache_kafka_classpath()
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    kafka = ApacheKafka(directory=tmp_path, jvm_options=jvm.BROKER)
    with kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, config=CONFIG)])[TOPIC].result(30)
        sent = produce_with_every_codec(kafka.bootstrap)
    expected = [b"%d" % number for number in range(sent)]

    config = LogConfig(segment_bytes=1048576, index_interval_bytes=100)
    log = open_log(config, name=f"data/{TOPIC}-0", clean=True)
    assert stored_keys(log) == expected
    assert len(log.active_producers()) == 5
    assert len(log.segments[0].offset_index) > 50
    assert caplog.text == "", "Kafka's indexes and snapshots are taken as they are"

    for number in range(sent, sent + 100):
        record = Record(0, clock.now_ms(), b"%d" % number, b"ours")
        log.append(memoryview(build_batch([record], codec=Codec(number % 5))), leader_epoch=0)
    log.close()
    with kafka:
        assert consume(kafka.bootstrap, sent + 100) == [b"%d" % number for number in range(sent + 100)]
