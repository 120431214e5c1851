"""Files damaged while the broker was down or running, as its clients see them.

After an unclean stop everything after the recovery point is checked, and a log is cut before its first
broken batch. Flushed records are trusted: a flipped bit there is sent as it is, and the client's
own check of the batch's CRC finds it. Indexes are checked when they are first used, and rebuilt.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.testing import Broker

from .stored import read_all

TOPIC = "damaged"
CONFIGS = {"segment.bytes": "20000", "index.interval.bytes": "1000", "flush.ms": "3600000"}
RECORDS = 60
PATIENCE_SECONDS = 20


@pytest.fixture
def broker(caplog: pytest.LogCaptureFixture) -> Iterator[Broker]:
    """Three segments of about twenty batches each, nothing flushed."""
    caplog.set_level(logging.INFO, "millrace")
    # Consumers must have a group id, although they do not need one here.
    with Broker({"offsets.topic.num.partitions": "1"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for topic in (TOPIC, "intact"):
            admin.create_topics([NewTopic(topic, 1, config=CONFIGS)])[topic].result(PATIENCE_SECONDS)
            send(broker, range(RECORDS), topic)
        yield broker


def send(broker: Broker, numbers: range, topic: str = TOPIC) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 1})
    for number in numbers:
        producer.produce(topic, value_of(number), timestamp=1_700_000_000_000 + number)
    assert producer.flush(PATIENCE_SECONDS) == 0


def value_of(number: int) -> bytes:
    return b"%d " % number + b"v" * 800


def files(broker: Broker, suffix: str) -> list[Path]:
    return sorted((broker.data_dir / f"{TOPIC}-0").glob(f"*{suffix}"))


def holds(broker: Broker, count: int, topic: str = TOPIC) -> None:
    stored = read_all(broker.bootstrap, topic, 0)
    assert stored.values == {number: value_of(number) for number in range(count)}


def flip_bit(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


def goes_on(broker: Broker, count: int) -> None:
    """Exactly the first `count` records are left, new ones follow them, and other partitions are intact."""
    holds(broker, count)
    send(broker, range(count, count + 10))
    holds(broker, count + 10)
    holds(broker, RECORDS, "intact")


def test_a_torn_batch_at_the_end_is_cut(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    broker.kill9()
    active = files(broker, ".log")[-1]
    active.write_bytes(active.read_bytes()[:-100])
    broker.start()
    assert f"{active}: the file ends within a batch" in caplog.text
    goes_on(broker, RECORDS - 1)


def test_half_a_header_at_the_end_is_cut(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    broker.kill9()
    active = files(broker, ".log")[-1]
    with active.open("ab") as file:
        file.write(active.read_bytes()[:30])
    broker.start()
    assert f"{active}: the file ends within a batch header" in caplog.text
    goes_on(broker, RECORDS)


@pytest.mark.parametrize("tail", [bytes(5000), b"\xff" * 5000], ids=["zeros", "ones"])
def test_noise_at_the_end_is_cut(broker: Broker, tail: bytes, caplog: pytest.LogCaptureFixture) -> None:
    broker.kill9()
    active = files(broker, ".log")[-1]
    with active.open("ab") as file:
        file.write(tail)
    broker.start()
    assert f"{active}: there is no batch where one should start" in caplog.text
    goes_on(broker, RECORDS)


def test_a_flipped_bit_that_was_never_flushed_cuts_the_log_there(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.kill9()
    first, *_, active = files(broker, ".log")
    flip_bit(active, active.stat().st_size - 10)
    broker.start()
    assert f"{active}: the checksum of a batch does not match at offset {RECORDS - 1}" in caplog.text
    goes_on(broker, RECORDS - 1)
    assert first.exists()


def test_a_flipped_bit_in_an_unflushed_sealed_segment_removes_later_segments(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.kill9()
    first, second, *_ = files(broker, ".log")
    flip_bit(second, 200)
    kept = int(second.stem)
    broker.start()
    assert f"{second}: the checksum of a batch does not match at offset {kept}" in caplog.text
    assert "that follow the corrupt batch" in caplog.text
    assert files(broker, ".log") == [first, second]
    goes_on(broker, kept)


def test_a_flipped_bit_in_a_flushed_segment_is_found_by_the_client(broker: Broker) -> None:
    broker.stop()
    first, *_ = files(broker, ".log")
    flip_bit(first, first.stat().st_size - 10)
    broker.start()
    assert files(broker, ".log")[0] == first
    # The last record of the first segment is the broken one.
    after = int(files(broker, ".log")[1].stem)
    values, errors = read_past_errors(broker)
    assert KafkaError._BAD_MSG in errors
    assert values.items() >= {number: value_of(number) for number in range(after, RECORDS)}.items()
    holds(broker, RECORDS, "intact")
    send(broker, range(RECORDS, RECORDS + 1))


def test_a_wrong_length_in_a_flushed_segment_is_found_by_the_client(broker: Broker) -> None:
    broker.stop()
    first, *_ = files(broker, ".log")
    flip_bit(first, 8)
    broker.start()
    values, errors = read_past_errors(broker)
    assert errors
    assert values.items() >= {number: value_of(number) for number in range(30, RECORDS)}.items()
    holds(broker, RECORDS, "intact")


def read_past_errors(broker: Broker) -> tuple[dict[int, bytes], set[int]]:
    """Read like a program that skips to the next segment after an unreadable batch."""
    values: dict[int, bytes] = {}
    errors: set[int] = set()
    # Where librdkafka continues after a broken batch depends on the bytes it found: at an offset
    # that the log does not have, it would jump to the end, unless it is configured to report that instead.
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "none",
            "check.crcs": True,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    while RECORDS - 1 not in values:
        message = consumer.poll(PATIENCE_SECONDS)
        assert message is not None, f"nothing follows {max(values, default=-1)}"
        if message.error():
            errors.add(message.error().code())
            consumer.assign([TopicPartition(TOPIC, 0, int(files(broker, ".log")[1].stem))])
        else:
            values[message.offset()] = message.value()
    consumer.close()
    return values, errors


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def overwrite(path: Path) -> None:
    path.write_bytes(b"\xab" * path.stat().st_size)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("damage", [remove, empty, shorten, overwrite])
@pytest.mark.parametrize("suffixes", [(".index",), (".timeindex",), (".index", ".timeindex")], ids="".join)
def test_damaged_indexes_are_rebuilt(
    broker: Broker, suffixes: tuple[str, ...], damage: Callable[[Path], None], clean: bool
) -> None:
    broker.stop() if clean else broker.kill9()
    damaged = [path for suffix in suffixes for path in files(broker, suffix)]
    for path in damaged:
        damage(path)
    broker.start()
    goes_on(broker, RECORDS)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none"})
    for number in (0, 7, RECORDS // 2, RECORDS - 1):
        asked = TopicPartition(TOPIC, 0, 1_700_000_000_000 + number)
        (found,) = consumer.offsets_for_times([asked], timeout=PATIENCE_SECONDS)
        assert found.offset == number, "looking up a time must survive the damage"
    consumer.close()
    broker.stop()
    assert all(path.stat().st_size for path in damaged)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_an_emptied_active_segment_is_lost_and_the_rest_stays(broker: Broker, clean: bool) -> None:
    broker.stop() if clean else broker.kill9()
    active = files(broker, ".log")[-1]
    empty(active)
    broker.start()
    goes_on(broker, int(active.stem))


def test_the_broker_survives_any_emptied_file_of_a_segment(broker: Broker) -> None:
    broker.kill9()
    for suffix in (".log", ".index", ".timeindex"):
        for path in files(broker, suffix)[-1:]:
            empty(path)
    for path in files(broker, ".snapshot"):
        empty(path)
    broker.start()
    goes_on(broker, int(files(broker, ".log")[-1].stem))


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 100, b"0\n5\ndamaged 0 3\n", b"\xe9\n"], ids=["empty", "zeros", "short", "latin"]
)
def test_damaged_checkpoints_cost_only_time(broker: Broker, content: bytes) -> None:
    broker.kill9()
    for name in ("recovery-point-offset", "log-start-offset", "cleaner-offset"):
        (broker.data_dir / f"{name}-checkpoint").write_bytes(content)
    broker.start()
    goes_on(broker, RECORDS)


def test_a_partition_that_cannot_be_opened_takes_only_itself_out_of_service(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.stop()
    checkpoint = broker.data_dir / f"{TOPIC}-0" / "leader-epoch-checkpoint"
    checkpoint.unlink()
    # Unreadable even for root, whom permissions do not stop.
    checkpoint.mkdir()
    broker.start()
    assert f"the log of {TOPIC}-0" in caplog.text
    assert "the other partitions are served" in caplog.text
    holds(broker, RECORDS, "intact")
    broker.stop()
    checkpoint.rmdir()
    broker.start()
    goes_on(broker, RECORDS)
