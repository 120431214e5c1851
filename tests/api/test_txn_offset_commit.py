"""TxnOffsetCommit in every version: offsets that wait for their transaction."""

import pytest

from millrace.errors import Error
from millrace.txn.transaction_state import ProducerIdentity
from millrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from millrace.wire.messages.end_txn import EndTxnRequest
from millrace.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

from ..node import create_topic
from .api import Api
from .conftest import Call
from .transactions import init_producer

VERSIONS = pytest.mark.parametrize("version", range(6))
JOINS_FROM = 5


@pytest.fixture(autouse=True)
def topic(api: Api) -> None:
    create_topic(api, "t", 2)


def commit(
    call: Call, version: int, producer: ProducerIdentity, topic: str = "t", metadata: str = "", **more: object
) -> Error:
    partition = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=42, committed_metadata=metadata
    )
    request = TxnOffsetCommitRequest(
        transactional_id="id",
        group_id="readers",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        **more,
    )
    return Error(call(request, version).topics[0].partitions[0].error_code)


def join(call: Call, version: int, producer: ProducerIdentity) -> None:
    if version < JOINS_FROM:
        request = AddOffsetsToTxnRequest(
            transactional_id="id",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            group_id="readers",
        )
        assert call(request).error_code == Error.NONE


def end(call: Call, version: int, producer: ProducerIdentity, *, committed: bool) -> None:
    request = EndTxnRequest(
        transactional_id="id",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=committed,
    )
    assert call(request, 5 if version >= JOINS_FROM else 3).error_code == Error.NONE


def offset_of(api: Api) -> int | None:
    found = api.groups.runtime.shard_of("readers").offsets.get("readers", "t", 0)
    return None if found is None else found.offset


@VERSIONS
@pytest.mark.parametrize("committed", [True, False])
def test_offsets_show_when_the_transaction_commits(
    call: Call, api: Api, version: int, committed: bool
) -> None:
    producer = init_producer(call)
    join(call, version, producer)
    assert commit(call, version, producer) is Error.NONE
    offsets = api.groups.runtime.shard_of("readers").offsets
    assert offsets.is_pending("readers", "t", 0)
    assert offset_of(api) is None
    end(call, version, producer, committed=committed)
    assert not offsets.is_pending("readers", "t", 0)
    assert offset_of(api) == (42 if committed else None)


@VERSIONS
def test_a_group_that_was_not_added_is_refused_or_joins(call: Call, version: int) -> None:
    refused = Error.TRANSACTION_ABORTABLE if version >= 4 else Error.INVALID_TXN_STATE
    expected = Error.NONE if version >= JOINS_FROM else refused
    assert commit(call, version, init_producer(call)) is expected


@VERSIONS
def test_a_fenced_producer_is_refused(call: Call, api: Api, version: int) -> None:
    zombie = init_producer(call)
    init_producer(call)
    assert commit(call, version, zombie) is Error.INVALID_PRODUCER_EPOCH
    assert not api.groups.runtime.shard_of("readers").offsets.has_pending("readers")


@pytest.mark.parametrize("version", range(3, 6))
def test_a_generation_that_is_not_the_groups_is_refused(call: Call, version: int) -> None:
    producer = init_producer(call)
    join(call, version, producer)
    refused = commit(call, version, producer, generation_id=7, member_id="nobody")
    assert refused is Error.ILLEGAL_GENERATION


@VERSIONS
def test_each_partition_is_answered_apart(call: Call, version: int) -> None:
    producer = init_producer(call)
    join(call, version, producer)
    assert commit(call, version, producer, topic="none") is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(call, version, producer, metadata="x" * 5000) is Error.OFFSET_METADATA_TOO_LARGE
