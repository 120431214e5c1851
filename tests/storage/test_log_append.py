"""Appending: offsets, rolling, and what an append leaves on disk."""

import pytest

from millrace.config import LogConfig
from millrace.errors import Error, KafkaError
from millrace.storage.log import Appended
from millrace.storage.segment import MAX_RELATIVE_OFFSET
from millrace.wire.compression import Codec
from millrace.wire.records import HEADER_BYTES, check_batch, iterate_batches, iterate_records


def stored(log):
    """Every batch in the log's files, checked."""
    batches = []
    for segment in log.segments:
        for _, batch in iterate_batches(segment.path(".log").read_bytes()):
            batches.append((check_batch(batch), bytes(batch)))
    return batches


def test_offsets_follow_each_other(open_log, make_batch):
    log = open_log()
    assert log.append(make_batch(3), leader_epoch=0) == Appended(0, 2, -1, 0)
    assert log.append(make_batch(1), leader_epoch=0) == Appended(3, 3, -1, 0)
    assert log.log_end_offset == 4


def test_the_broker_writes_offset_and_leader_epoch_and_leaves_the_rest_alone(open_log, make_batch):
    log = open_log()
    log.append(make_batch(2), leader_epoch=0)
    batch = make_batch(2)
    log.append(batch, leader_epoch=7)
    header, content = stored(log)[1]
    assert (header.base_offset, header.leader_epoch) == (2, 7)
    assert content[16:] == bytes(batch[16:])


def test_a_read_only_buffer_is_appended_too(open_log, make_batch):
    log = open_log()
    log.append(memoryview(bytes(make_batch())), leader_epoch=0)
    assert len(stored(log)) == 1


def test_an_append_costs_one_write(open_log, make_batch, disk):
    log = open_log()
    log.append(make_batch(), leader_epoch=0)
    before = disk.writes
    for _ in range(10):
        log.append(make_batch(), leader_epoch=0)
    assert disk.writes == before + 10


def test_topic_and_partition_come_from_the_directory(open_log):
    log = open_log(name="my-topic.with-dashes-12")
    assert (log.topic, log.partition) == ("my-topic.with-dashes", 12)


def test_segment_bytes_is_the_most_a_segment_holds(open_log, make_batch):
    size = len(make_batch())
    log = open_log(LogConfig(segment_bytes=3 * size))
    for _ in range(7):
        log.append(make_batch(), leader_epoch=0)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]
    assert [segment.size for segment in log.segments] == [3 * size, 3 * size, size]
    assert log.size == 7 * size


def test_a_batch_larger_than_a_segment_is_refused(open_log, make_batch):
    log = open_log(LogConfig(segment_bytes=1000))
    with pytest.raises(KafkaError) as refusal:
        log.append(make_batch(size=2000), leader_epoch=0)
    assert refusal.value.error is Error.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 0


def test_a_segment_rolls_when_its_first_batch_is_segment_ms_old(open_log, make_batch, clock):
    log = open_log(LogConfig(segment_ms=1000))
    log.append(make_batch(), leader_epoch=0)
    clock.advance(1000)
    log.append(make_batch(), leader_epoch=0)
    assert len(log.segments) == 1
    clock.advance(1)
    log.append(make_batch(), leader_epoch=0)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_reopened_segment_still_knows_its_age(open_log, make_batch, clock):
    config = LogConfig(segment_ms=1000)
    log = open_log(config)
    log.append(make_batch(), leader_epoch=0)
    log.close()
    clock.advance(1001)
    log = open_log(config, clean=True)
    log.append(make_batch(), leader_epoch=0)
    assert len(log.segments) == 2


def test_records_without_timestamps_age_by_the_clock(open_log, make_batch, clock):
    log = open_log(LogConfig(segment_ms=1000))
    log.append(make_batch(timestamp=-1), leader_epoch=0)
    clock.advance(1001)
    log.append(make_batch(timestamp=-1), leader_epoch=0)
    assert len(log.segments) == 2


def test_jitter_rolls_earlier(open_log, make_batch, clock, monkeypatch):
    monkeypatch.setattr("millrace.storage.log.random.randrange", lambda limit: limit - 1)
    log = open_log(LogConfig(segment_ms=1000, segment_jitter_ms=500))
    log.append(make_batch(), leader_epoch=0)
    clock.advance(502)
    log.append(make_batch(), leader_epoch=0)
    assert len(log.segments) == 2


def test_a_full_index_rolls(open_log, make_batch):
    log = open_log(LogConfig(segment_index_bytes=60, index_interval_bytes=0))
    for _ in range(12):
        log.append(make_batch(), leader_epoch=0)
    assert len(log.segments) > 1
    log.close()
    for segment in log.segments:
        assert segment.path(".index").stat().st_size <= 60
        assert segment.path(".timeindex").stat().st_size <= 60


def test_offsets_beyond_the_index_range_roll(open_log, make_batch):
    log = open_log()
    log.append(make_batch(), leader_epoch=0)
    log.log_end_offset = MAX_RELATIVE_OFFSET - 1
    log.append(make_batch(2), leader_epoch=0)
    assert len(log.segments) == 1
    log.append(make_batch(), leader_epoch=0)
    assert [segment.base_offset for segment in log.segments] == [0, MAX_RELATIVE_OFFSET + 1]


def test_an_empty_segment_does_not_roll(open_log, make_batch):
    log = open_log(LogConfig(segment_index_bytes=4))
    log.roll()
    assert len(log.segments) == 1
    for _ in range(3):
        log.append(make_batch(), leader_epoch=0)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]


def test_a_config_change_holds_from_the_next_append_on(open_log, make_batch):
    log = open_log()
    log.append(make_batch(), leader_epoch=0)
    log.config = LogConfig(segment_bytes=len(make_batch()), message_timestamp_type="LogAppendTime")
    assert log.append(make_batch(), leader_epoch=0).log_append_time_ms == log._clock.now_ms()
    assert len(log.segments) == 2


@pytest.mark.parametrize("codec_name", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_a_prescribed_codec_is_applied_and_the_records_stay(open_log, make_batch, codec_name):
    log = open_log(LogConfig(compression_type=codec_name))
    log.append(make_batch(5), leader_epoch=0)
    log.append(make_batch(5, codec=Codec.GZIP), leader_epoch=3)
    batches = list(stored(log))
    assert len(batches) == 2
    for number, (header, batch) in enumerate(batches):
        assert header.codec.name.lower() == ("none" if codec_name == "uncompressed" else codec_name)
        assert [record.offset for record in iterate_records(batch)] == list(range(5 * number, 5 * number + 5))
        assert [record.key for record in iterate_records(batch)] == [b"key-%d" % n for n in range(5)]
    assert log.log_end_offset == 10


def test_a_batch_in_the_prescribed_codec_is_stored_as_sent(open_log, make_batch):
    log = open_log(LogConfig(compression_type="gzip"))
    batch = make_batch(5, codec=Codec.GZIP)
    log.append(batch, leader_epoch=0)
    assert stored(log)[0][1][HEADER_BYTES:] == bytes(batch[HEADER_BYTES:])


def test_log_append_time_stamps_the_batch_and_tells_the_time(open_log, make_batch, clock):
    log = open_log(LogConfig(message_timestamp_type="LogAppendTime"))
    batch = make_batch(3, timestamp=5)
    clock.advance(1234)
    assert log.append(batch, leader_epoch=0).log_append_time_ms == clock.now_ms()
    (header, content), *_ = stored(log)
    assert header.is_log_append_time
    assert [record.timestamp for record in iterate_records(content)] == [clock.now_ms()] * 3


def test_leader_epochs_are_kept_across_a_restart(open_log, make_batch):
    log = open_log()
    log.append(make_batch(2), leader_epoch=0)
    log.append(make_batch(3), leader_epoch=4)
    assert log.latest_epoch == 4
    assert (log.directory / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n4 2\n"
    log.close()
    log = open_log(clean=True)
    assert log.latest_epoch == 4
    assert log.epoch_end_offset(0) == (0, 2)
    assert log.epoch_end_offset(2) == (0, 2)
    assert log.epoch_end_offset(4) == (4, 5)
    assert log.epoch_end_offset(5) == (-1, -1)


def test_an_empty_log_knows_no_epoch(open_log):
    log = open_log()
    assert log.latest_epoch is None
    assert log.epoch_end_offset(0) == (-1, -1)


def test_deleting_moves_the_directory_away_at_once(open_log, make_batch, tmp_path):
    log = open_log()
    log.append(make_batch(), leader_epoch=0)
    finish = log.delete()
    assert not (tmp_path / "events-0").exists()
    (doomed,) = tmp_path.iterdir()
    assert doomed.name.startswith("events-0.")
    assert doomed.name.endswith("-delete")
    finish()
    assert list(tmp_path.iterdir()) == []


def test_a_topic_with_the_longest_name_can_be_deleted(open_log):
    log = open_log(name="n" * 249 + "-0")
    log.delete()()


def test_a_directory_that_is_not_writable_is_a_clear_error(open_log, tmp_path):
    (tmp_path / "events-0").write_text("in the way")
    with pytest.raises(KafkaError) as refusal:
        open_log()
    assert refusal.value.error is Error.KAFKA_STORAGE_ERROR
    assert "events-0" in refusal.value.message
