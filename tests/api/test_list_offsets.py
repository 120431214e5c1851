"""ListOffsets: by position and by time."""

import pytest

from millrace.errors import Error
from millrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from millrace.wire.records import Record, build_batch

from ..node import create_topic
from .api import Api
from .conftest import Call

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
TIMES = (100, 300, 200, 400)


def at(timestamp: int, *, index: int = 0, epoch: int = -1, isolation_level: int = 0) -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=epoch)
    topic = ListOffsetsTopic(name="orders", partitions=[partition])
    return ListOffsetsRequest(topics=[topic], isolation_level=isolation_level)


def find(call: Call, request: ListOffsetsRequest, version: int) -> ListOffsetsPartitionResponse:
    (topic,) = call(request, version).topics
    (partition,) = topic.partitions
    return partition


@pytest.fixture(autouse=True)
def orders(api: Api) -> None:
    create_topic(api, "orders", 1, configs={"message.timestamp.before.max.ms": str(2**63 - 1)})
    for timestamp in TIMES:
        record = Record(offset=0, timestamp=timestamp, key=None, value=b"v", headers=())
        api.partitions.leader("orders", 0).append_as_leader(memoryview(build_batch([record])))


@pytest.mark.parametrize("version", range(1, 12))
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_the_ends_of_the_log(call: Call, api: Api, version: int, isolation_level: int) -> None:
    api.partitions.leader("orders", 0).log.delete_records_before(1)
    latest = find(call, at(LATEST, isolation_level=isolation_level), version)
    earliest = find(call, at(EARLIEST, isolation_level=isolation_level), version)
    assert (latest.offset, latest.timestamp, latest.error_code) == (4, -1, Error.NONE)
    assert (earliest.offset, earliest.timestamp, earliest.error_code) == (1, -1, Error.NONE)


@pytest.mark.parametrize(
    ("timestamp", "offset", "found"),
    [(0, 0, 100), (100, 0, 100), (101, 1, 300), (300, 1, 300), (301, 3, 400), (401, -1, -1)],
)
def test_the_first_record_at_or_after_a_time(call: Call, timestamp: int, offset: int, found: int) -> None:
    partition = find(call, at(timestamp), 7)
    assert (partition.offset, partition.timestamp, partition.error_code) == (offset, found, Error.NONE)


@pytest.mark.parametrize(
    ("special", "version", "offset"),
    [(MAX_TIMESTAMP, 7, 3), (EARLIEST_LOCAL, 8, 0), (LATEST_TIERED, 9, -1), (PENDING_UPLOAD, 11, -1)],
)
def test_special_timestamps_belong_to_versions(call: Call, special: int, version: int, offset: int) -> None:
    assert find(call, at(special), version).offset == offset
    assert find(call, at(special), version - 1).error_code == Error.UNSUPPORTED_VERSION


def test_a_made_up_special_timestamp_is_refused(call: Call) -> None:
    assert find(call, at(-77), 11).error_code == Error.UNSUPPORTED_VERSION


def test_unknown_partitions_and_epochs_are_errors(call: Call) -> None:
    assert find(call, at(LATEST, index=5), 7).error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert find(call, at(LATEST, epoch=3), 7).error_code == Error.UNKNOWN_LEADER_EPOCH
    assert find(call, at(LATEST, epoch=0), 7).error_code == Error.NONE


def test_each_end_comes_with_its_own_leader_epoch(call: Call, api: Api) -> None:
    partition = api.partitions.leader("orders", 0)
    partition.leader_epoch = 5
    record = Record(offset=0, timestamp=TIMES[-1], key=None, value=b"v", headers=())
    partition.append_as_leader(memoryview(build_batch([record])))
    assert find(call, at(EARLIEST), 7).leader_epoch == 0
    assert find(call, at(LATEST), 7).leader_epoch == 5
    create_topic(api, "empty", 1)
    request = at(EARLIEST)
    request.topics[0].name = "empty"
    assert find(call, request, 7).leader_epoch == 0


def test_a_partition_that_is_named_twice_is_refused(call: Call) -> None:
    request = at(LATEST)
    request.topics[0].partitions *= 2
    request.topics[0].partitions.append(ListOffsetsPartition(partition_index=7, timestamp=LATEST))
    (topic,) = call(request, 5).topics
    assert [partition.error_code for partition in topic.partitions] == [
        Error.INVALID_REQUEST,
        Error.INVALID_REQUEST,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
    ]
