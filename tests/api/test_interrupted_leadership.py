"""Requests in several steps, while this broker resigns as their coordinator and is elected again.

The next leader did not have what the request wrote, so the write is lost. A response may say that it
succeeded only if it has.
"""

import inspect
from typing import Any

import pytest

from millrace.api import HANDLERS_BY_KEY
from millrace.api.dispatch import error_response
from millrace.coordinator.runtime import Runtime
from millrace.deferred import Deferred
from millrace.errors import Error, KafkaError
from millrace.groups.group import Commit
from millrace.groups.offsets import CommittedOffset
from millrace.replication.partition import Partition
from millrace.steps import finish_at_once
from millrace.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from millrace.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from millrace.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from millrace.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

from ..coordinator.replicas import FOLLOWER, ME, catch_up, replicate
from ..node import create_topic, finish
from .api import Api
from .conftest import Call
from .members import GROUP, Talk
from .transactions import init_producer

EVERY_STEP = pytest.mark.parametrize("steps", range(10))


class Coordinator:
    """A coordinator whose log has a follower that lacks everything from now on."""

    def __init__(self, api: Api, runtime: Runtime[Any], key: str) -> None:
        self._api = api
        self._runtime = runtime
        index = runtime.partition_of(key)
        self._partition: Partition = api.partitions.leader(runtime.topic, index)
        replicate([self._partition])
        catch_up([self._partition])
        self._replicated_end = self._partition.log.log_end_offset

    def answer(self, request: Any, version: int, *, steps: int) -> Any:
        """The response to a request if leadership is lost and won again after some of its steps."""
        self._api.api_version = version
        handler = HANDLERS_BY_KEY[request.api_key]
        work = handler.handle(self._api.context(), request)
        assert inspect.isgenerator(work)
        try:
            for _ in range(steps):
                next(work)
        except StopIteration as end:
            response = end.value
        else:
            self._lose_and_win_leadership()
            try:
                response = finish_at_once(work)
            except KafkaError as error:
                response = error_response(handler, error)
        catch_up([self._partition])
        return response.result() if isinstance(response, Deferred) else response

    def _lose_and_win_leadership(self) -> None:
        partition, epoch = self._partition, self._partition.leader_epoch
        self._runtime.resigned(partition.index)
        partition.become_follower(epoch + 1, FOLLOWER)
        partition.truncate_to(self._replicated_end)
        partition.become_leader(epoch + 2, (ME, FOLLOWER), (ME, FOLLOWER), node_id=ME)
        if self._runtime.elected(partition.index, epoch + 2):
            self._api.loop.run_until_complete(self._runtime.load())


@pytest.fixture(autouse=True)
def orders(api: Api) -> None:
    create_topic(api, "orders", 2)


def commit(api: Api, offset: int) -> None:
    committed = [(("orders", index), CommittedOffset(offset, -1, "", 0)) for index in (0, 1)]
    api.groups.commit(GROUP, Commit("", None, -1), committed)


def offset_of(api: Api, index: int) -> int | None:
    found = api.groups.runtime.shard_of(GROUP).offsets.get(GROUP, "orders", index)
    return None if found is None else found.offset


@EVERY_STEP
def test_partitions_are_part_of_a_transaction_if_the_response_says_so(
    api: Api, call: Call, steps: int
) -> None:
    producer = init_producer(call)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="id",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="orders", partitions=[0, 1])],
    )
    response = Coordinator(api, api.transactions.runtime, "id").answer(request, 3, steps=steps)
    (results,) = response.results_by_topic_v3_and_below
    errors = {Error(result.partition_error_code) for result in results.results_by_partition}
    is_added = api.transactions.find("id").partitions == {("orders", 0), ("orders", 1)}
    assert errors == {Error.NONE if is_added else Error.NOT_COORDINATOR}


@EVERY_STEP
def test_offsets_are_deleted_if_the_response_says_so(api: Api, steps: int) -> None:
    finish(api.groups.runtime.ensure_topic())
    commit(api, 5)
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 1)]
    topic = OffsetDeleteRequestTopic(name="orders", partitions=partitions)
    request = OffsetDeleteRequest(group_id=GROUP, topics=[topic])
    coordinator = Coordinator(api, api.groups.runtime, GROUP)
    try:
        error = Error(coordinator.answer(request, 0, steps=steps).error_code)
    except KafkaError as failed:
        error = failed.error
    is_deleted = offset_of(api, 0) is None and offset_of(api, 1) is None
    assert error is (Error.NONE if is_deleted else Error.NOT_COORDINATOR)


@EVERY_STEP
def test_an_offset_that_is_lost_is_not_fetched(api: Api, steps: int) -> None:
    finish(api.groups.runtime.ensure_topic())
    commit(api, 5)
    coordinator = Coordinator(api, api.groups.runtime, GROUP)
    commit(api, 6)
    topics = [OffsetFetchRequestTopics(name="orders", partition_indexes=[0, 1])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)])
    (group,) = coordinator.answer(request, 8, steps=steps).groups
    if group.error_code == Error.NONE:
        (topic,) = group.topics
        offsets = [partition.committed_offset for partition in topic.partitions]
        assert offsets == [offset_of(api, 0), offset_of(api, 1)]
    else:
        assert Error(group.error_code) is Error.NOT_COORDINATOR


@EVERY_STEP
def test_a_member_has_left_if_the_response_says_so(api: Api, talk: Talk, steps: int) -> None:
    joined = talk.enter()
    talk.assign(joined)
    coordinator = Coordinator(api, api.groups.runtime, GROUP)
    request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=joined.member_id)])
    try:
        error = Error(coordinator.answer(request, 5, steps=steps).error_code)
    except KafkaError as failed:
        error = failed.error
    has_left = joined.member_id not in api.groups.find(GROUP).members
    assert error is (Error.NONE if has_left else Error.NOT_COORDINATOR)
