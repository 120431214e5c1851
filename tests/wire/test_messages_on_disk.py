"""Messages that live in files and internal topics, against bytes that Apache Kafka 4.3.1 wrote."""

import pytest

from millrace.wire.codec import decode, encode
from millrace.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from millrace.wire.messages.consumer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
)
from millrace.wire.messages.consumer_group_records import TopicPartitions as CurrentPartitions
from millrace.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from millrace.wire.messages.producer_snapshot import ProducerEntry, ProducerSnapshot
from millrace.wire.messages.transaction_records import PartitionsSchema, TransactionLogValue
from millrace.wire.schema import Message

TOPIC_ID = (1).to_bytes(8, "big") + (2).to_bytes(8, "big")

SNAPSHOT = ProducerSnapshot(
    crc=0xDEADBEEF,
    producer_entries=[
        ProducerEntry(
            producer_id=1,
            epoch=2,
            last_sequence=3,
            last_offset=4,
            offset_delta=5,
            timestamp=6,
            coordinator_epoch=7,
            current_txn_first_offset=-1,
        )
    ],
)

GROUP = GroupMetadataValue(
    protocol_type="consumer",
    generation=3,
    protocol="range",
    leader=None,
    current_state_timestamp=1_700_000_000_000,
    members=[
        MemberMetadata(
            member_id="m",
            group_instance_id="i",
            client_id="c",
            client_host="/127.0.0.1",
            rebalance_timeout=9,
            session_timeout=8,
            subscription=b"\x01",
            assignment=b"\x02\x03",
        )
    ],
)

MEMBER = ConsumerGroupMemberMetadataValue(
    instance_id="i",
    rack_id=None,
    client_id="c",
    client_host="h",
    subscribed_topic_names=["t"],
    subscribed_topic_regex=None,
    rebalance_timeout_ms=5,
    server_assignor="range",
    classic_member_metadata=ClassicMemberMetadata(
        session_timeout_ms=7, supported_protocols=[ClassicProtocol(name="range", metadata=b"\x01\x02")]
    ),
)

ASSIGNMENT = ConsumerGroupCurrentMemberAssignmentValue(
    member_epoch=4,
    previous_member_epoch=3,
    state=1,
    assigned_partitions=[CurrentPartitions(topic_id=TOPIC_ID, partitions=[1, 2], assignment_epochs=[4, 4])],
)


def transaction(**more: int) -> TransactionLogValue:
    return TransactionLogValue(
        producer_id=11,
        producer_epoch=2,
        transaction_timeout_ms=60_000,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[0, 3])],
        transaction_last_update_timestamp_ms=5,
        transaction_start_timestamp_ms=4,
        **more,
    )


WRITTEN_BY_KAFKA = [
    (
        SNAPSHOT,
        1,
        "deadbeef000000010000000000000001000200000003000000000000000400000005000000000000000600000007ffffffffffffffff",
    ),
    (MEMBER, 0, "0269000263026802027400000000050672616e67650100110100000007020672616e67650301020000"),
    (
        GROUP,
        0,
        "0008636f6e73756d657200000003000572616e6765ffff0000000100016d000163000a2f3132372e302e302e31000000080000000101000000020203",
    ),
    (
        GROUP,
        1,
        "0008636f6e73756d657200000003000572616e6765ffff0000000100016d000163000a2f3132372e302e302e3100000009000000080000000101000000020203",
    ),
    (
        GROUP,
        2,
        "0008636f6e73756d657200000003000572616e6765ffff0000018bcfe568000000000100016d000163000a2f3132372e302e302e3100000009000000080000000101000000020203",
    ),
    (
        GROUP,
        3,
        "0008636f6e73756d657200000003000572616e6765ffff0000018bcfe568000000000100016d000169000163000a2f3132372e302e302e3100000009000000080000000101000000020203",
    ),
    (
        GROUP,
        4,
        "09636f6e73756d6572000000030672616e6765000000018bcfe5680002026d026902630b2f3132372e302e302e31000000090000000802010302030000",
    ),
    (OffsetCommitKey(group="g", topic="t", partition=2), 0, "00016700017400000002"),
    (
        OffsetCommitValue(offset=42, metadata="m", commit_timestamp=7, expire_timestamp=9),
        1,
        "000000000000002a00016d00000000000000070000000000000009",
    ),
    (
        OffsetCommitValue(offset=42, leader_epoch=5, metadata="m", commit_timestamp=7),
        3,
        "000000000000002a0000000500016d0000000000000007",
    ),
    (
        OffsetCommitValue(offset=42, leader_epoch=5, metadata="m", commit_timestamp=7, topic_id=TOPIC_ID),
        4,
        "000000000000002a00000005026d000000000000000701001000000000000000010000000000000002",
    ),
    (
        transaction(),
        0,
        "000000000000000b00020000ea60010000000100017400000002000000000000000300000000000000050000000000000004",
    ),
    (
        transaction(previous_producer_id=10, next_producer_epoch=1, client_transaction_version=2),
        1,
        "000000000000000b00020000ea60010202740300000000000000030000000000000000050000000000000004030008000000000000000a0202000203020001",
    ),
    (
        ASSIGNMENT,
        0,
        "00000004000000030102000000000000000100000000000000020300000001000000020100090300000004000000040100",
    ),
    (
        ConsumerGroupHeartbeatResponse(
            member_id="m",
            member_epoch=1,
            heartbeat_interval_ms=5000,
            assignment=Assignment(topic_partitions=[TopicPartitions(topic_id=TOPIC_ID, partitions=[0])]),
        ),
        0,
        "00000000000000026d00000001000013880102000000000000000100000000000000020200000000000000",
    ),
]


@pytest.mark.parametrize(("message", "version", "written"), WRITTEN_BY_KAFKA)
def test_bytes_are_apache_kafkas(message: Message, version: int, written: str) -> None:
    assert encode(message, version).hex() == written


@pytest.mark.parametrize(("message", "version", "written"), WRITTEN_BY_KAFKA)
def test_what_apache_kafka_wrote_is_read(message: Message, version: int, written: str) -> None:
    decoded, _ = decode(type(message), version, bytes.fromhex(written))
    assert encode(decoded, version).hex() == written
    if version == type(message).versions[-1]:
        assert decoded == message


def test_the_kinds_of_record_are_told_apart_by_their_keys() -> None:
    assert (OffsetCommitKey.record_type, GroupMetadataKey.record_type) == (1, 2)
