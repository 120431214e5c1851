"""OffsetForLeaderEpoch: where an epoch ended."""

import pytest

from millrace.errors import Error
from millrace.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from ..node import create_topic
from ..records import batch
from .api import Api
from .conftest import Call


@pytest.mark.parametrize(
    ("topic", "epochs", "expected"),
    [
        ("orders", (-1, 0), (Error.NONE, 0, 3)),
        ("orders", (0, 0), (Error.NONE, 0, 3)),
        ("orders", (-1, 5), (Error.NONE, -1, -1)),
        ("orders", (-1, -1), (Error.NONE, -1, -1)),
        ("empty", (-1, 0), (Error.NONE, 0, 0)),
        ("orders", (1, 0), (Error.UNKNOWN_LEADER_EPOCH, -1, -1)),
        ("none", (-1, 0), (Error.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)),
    ],
)
def test_the_end_of_an_epoch(
    call: Call, api: Api, topic: str, epochs: tuple[int, int], expected: tuple[Error, int, int]
) -> None:
    current, asked = epochs
    create_topic(api, "orders", 1)
    create_topic(api, "empty", 1)
    api.partitions.leader("orders", 0).append_as_leader(memoryview(batch(b"a", b"b", b"c")))
    partition = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=asked)
    response = call(
        OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[partition])])
    )
    (result,) = response.topics[0].partitions
    assert (result.error_code, result.leader_epoch, result.end_offset) == expected
