"""Every API declares the operations it needs, and an authorizer is asked before anything happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millrace.api import HANDLERS, LOGIN_KEYS
from millrace.api.authorization import ERRORS, Need, Within
from millrace.api.dispatch import Handler
from millrace.deferred import Deferred
from millrace.errors import Error
from millrace.net.replies import CloseConnection
from millrace.security.acl_authorizer import AclAuthorizer
from millrace.security.acls import Acl, AclOperation, AclResource, PatternType, Permission
from millrace.security.authorizer import ANONYMOUS, CLUSTER, Principal, Resource
from millrace.security.operations import Operation, ResourceType
from millrace.wire.frames import encode_request, read_response
from millrace.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from millrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from millrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from millrace.wire.messages.init_producer_id import InitProducerIdRequest
from millrace.wire.messages.list_groups import ListGroupsRequest
from millrace.wire.messages.list_transactions import ListTransactionsRequest
from millrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from millrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from millrace.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from millrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from millrace.wire.schema import Array, Nested, String

from ..node import create_topic, finish
from ..records import batch
from ..waiting import run_until
from .api import Api

DENIED = {int(error) for error in ERRORS.values()}

Rule = Callable[[Operation, Resource], bool]


class Rules:
    """An authorizer that follows a rule and keeps what it was asked."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self.asked: list[tuple[Operation, Resource]] = []

    def allows(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        assert principal == ANONYMOUS
        self.asked.append((operation, resource))
        return self._rule(operation, resource)

    def allows_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceType) -> bool:
        return self._rule(operation, Resource(kind, "any"))


def deny_all(*_: object) -> bool:
    return False


def allow_all(*_: object) -> bool:
    return True


def allow_all_but(name: str) -> Rule:
    return lambda _, resource: resource.name not in (name, CLUSTER.name)


def exchange(api: Api, request: Any, version: int) -> Any:
    """The response of the dispatcher; None if there is none."""
    replies: list[Any] = []
    reply = api.dispatcher()(memoryview(encode_request(request, version, 1, "tests"))[4:])
    if isinstance(reply, Deferred):
        reply.then(replies.append)
        run_until(api.loop, lambda: replies)
    else:
        replies.append(reply)
    (chunks,) = replies
    if isinstance(chunks, CloseConnection):
        raise chunks
    return None if chunks is None else read_response(request.response, version, b"".join(chunks)[4:])[1]


def one_of_each(struct: type[Any], version: int) -> Any:
    """A request with one item in each list of a version."""
    made = struct()
    if struct is ListTransactionsRequest:
        # Its lists are filters, which would leave nothing to hide.
        return made
    for name, field in struct.wire_fields.items():
        if version in field.versions and isinstance(field.type, Array):
            element = field.type.element
            if isinstance(element, Nested):
                setattr(made, name, [one_of_each(element.struct, version)])
            else:
                setattr(made, name, ["x" if isinstance(element, String) else 0])
        elif version in field.versions and isinstance(field.type, String) and field.default == "":
            setattr(made, name, "x")
        elif version in field.versions and name.startswith("include_"):
            setattr(made, name, True)
    if struct.__name__ == "ProduceRequest":
        made.acks = 1
    return made


def error_codes(response: Any) -> set[int]:
    """Every error code in a response."""
    if isinstance(response, list):
        return set().union(*map(error_codes, response))
    found: set[int] = set()
    for name in getattr(type(response), "wire_fields", ()):
        value = getattr(response, name)
        if name.endswith("error_code"):
            found.add(value)
        elif isinstance(value, list) or hasattr(type(value), "wire_fields"):
            found |= error_codes(value)
    return found


VERSIONED = [
    pytest.param(handler, version, id=f"{handler.request.__name__}-{version}")
    for handler in HANDLERS
    for version in sorted({handler.lowest, handler.highest})
]


def test_only_apis_before_authentication_are_public() -> None:
    for handler in HANDLERS:
        assert isinstance(handler.authorize, tuple)
        assert all(isinstance(need, Need | Within) for need in handler.authorize)
    assert {handler.api_key for handler in HANDLERS if not handler.authorize} == LOGIN_KEYS


@pytest.mark.parametrize(("handler", "version"), VERSIONED)
def test_an_authorizer_that_denies_everything_is_asked_and_obeyed(
    api: Api, handler: Handler, version: int
) -> None:
    topic = create_topic(api, "x", 1)
    finish(api.groups.runtime.ensure_topic())
    finish(api.transactions.runtime.ensure_topic())
    exchange(api, InitProducerIdRequest("x", 60_000), 4)
    before = state_of(api)
    rules = Rules(deny_all)
    api.authorize_with(rules)
    request = one_of_each(handler.request, version)
    _name_topics_by_id(request, topic.topic_id)
    response = exchange(api, request, version)
    if handler.api_key in LOGIN_KEYS:
        assert not rules.asked
        return
    declared = {need.operation for need in handler.authorize}
    assert rules.asked
    assert {operation for operation, _ in rules.asked} <= declared
    assert error_codes(response) & DENIED or is_bare(response)
    assert state_of(api) == before


def is_bare(response: Any) -> bool:
    """Whether a response has none of the lists and bit fields that would tell of resources."""
    public = ("brokers", "host", "cluster_id")
    told = {name: getattr(response, name) for name in type(response).wire_fields if name not in public}
    return not any(value for name, value in told.items() if isinstance(value, list) or "operations" in name)


def state_of(api: Api) -> tuple[object, ...]:
    """All that a request could change."""
    ends = {(log.topic, log.index): log.log.log_end_offset for log in api.partitions}
    return id(api.image), len(list(api.groups)), list(api.transactions), ends


def _name_topics_by_id(item: Any, topic_id: bytes) -> None:
    for name in type(item).wire_fields:
        value = getattr(item, name)
        if name == "topic_id":
            item.topic_id = topic_id
        elif isinstance(value, list):
            for element in value:
                if hasattr(type(element), "wire_fields"):
                    _name_topics_by_id(element, topic_id)


@pytest.mark.parametrize(("handler", "version"), VERSIONED)
def test_an_authorizer_that_allows_everything_changes_no_error(
    api: Api, handler: Handler, version: int
) -> None:
    create_topic(api, "x", 1)
    api.authorize_with(Rules(allow_all))
    try:
        response = exchange(api, one_of_each(handler.request, version), version)
    except CloseConnection as closed:
        # Some APIs have no field for an error of the whole request.
        assert "AUTHORIZATION" not in str(closed)
        return
    assert not error_codes(response) & DENIED


ALLOWED = Principal("User", "ada")
ALL_TO_ADA = frozenset(
    Acl(kind, name, PatternType.LITERAL, "User:ada", "*", AclOperation.ALL, Permission.ALLOW)
    for kind in AclResource
    for name in (["kafka-cluster"] if kind is AclResource.CLUSTER else ["*"])
)


@pytest.mark.parametrize(
    "principal", [ANONYMOUS, Principal("User", "eve"), ALLOWED], ids=lambda who: who.name
)
@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.name)
def test_acls_of_one_user_let_that_user_in_and_no_other(
    api: Api, handler: Handler, principal: Principal
) -> None:
    version = handler.highest
    topic = create_topic(api, "x", 1)
    finish(api.groups.runtime.ensure_topic())
    finish(api.transactions.runtime.ensure_topic())
    before = state_of(api)
    api.authorize_with(AclAuthorizer(lambda: ALL_TO_ADA, super_users=(), allow_without_acl=False))
    api.session.principal = principal
    request = one_of_each(handler.request, version)
    _name_topics_by_id(request, topic.topic_id)
    try:
        response = exchange(api, request, version)
    except CloseConnection as closed:
        assert "AUTHORIZATION" not in str(closed)
        return
    is_denied = bool(error_codes(response) & DENIED)
    if principal == ALLOWED or handler.api_key in LOGIN_KEYS:
        assert not is_denied
    else:
        assert is_denied or is_bare(response)
        assert state_of(api) == before


def produce(*topics: str, acks: int = 1) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        topic_data=[
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch(b"v"))])
            for topic in topics
        ],
    )


@pytest.fixture
def topics(api: Api) -> None:
    create_topic(api, "open", 1)
    create_topic(api, "secret", 1)


@pytest.mark.usefixtures("topics")
def test_the_allowed_part_of_a_request_is_handled(api: Api) -> None:
    api.authorize_with(Rules(allow_all_but("secret")))
    response = exchange(api, produce("open", "secret"), 9)
    errors = {topic.name: topic.partition_responses[0].error_code for topic in response.responses}
    assert errors == {"open": Error.NONE, "secret": Error.TOPIC_AUTHORIZATION_FAILED}
    ends = [api.partitions.leader(topic, 0).log.log_end_offset for topic in ("open", "secret")]
    assert ends == [1, 0]


@pytest.mark.usefixtures("topics")
def test_a_producer_without_acks_loses_its_connection(api: Api) -> None:
    api.authorize_with(Rules(allow_all_but("secret")))
    with pytest.raises(CloseConnection, match="TOPIC_AUTHORIZATION_FAILED"):
        exchange(api, produce("secret", acks=0), 9)
    assert api.partitions.leader("secret", 0).log.log_end_offset == 0


@pytest.mark.usefixtures("topics")
def test_topics_that_a_client_may_not_describe_are_hidden(api: Api) -> None:
    api.authorize_with(Rules(allow_all_but("secret")))
    everything = exchange(api, MetadataRequest(topics=None), 12)
    assert [topic.name for topic in everything.topics] == ["open"]
    named = [MetadataRequestTopic(name="open"), MetadataRequestTopic(name="secret")]
    response = exchange(api, MetadataRequest(topics=named), 12)
    assert {topic.name: (topic.error_code, len(topic.partitions)) for topic in response.topics} == {
        "open": (Error.NONE, 1),
        "secret": (Error.TOPIC_AUTHORIZATION_FAILED, 0),
    }


@pytest.mark.usefixtures("topics")
def test_a_client_without_any_topic_still_learns_of_the_brokers(api: Api) -> None:
    api.authorize_with(Rules(deny_all))
    response = exchange(api, MetadataRequest(topics=[MetadataRequestTopic(name="open")]), 13)
    assert (len(response.brokers), response.error_code) == (1, Error.NONE)
    assert response.topics[0].error_code == Error.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.usefixtures("topics")
def test_denied_topics_do_not_fail_a_fetch_as_a_whole(api: Api) -> None:
    api.authorize_with(Rules(deny_all))
    topics = [FetchTopic(topic="open", partitions=[FetchPartition(partition=0)])]
    response = exchange(api, FetchRequest(topics=topics), 12)
    assert response.error_code == Error.NONE
    (partition,) = response.responses[0].partitions
    assert partition.error_code == Error.TOPIC_AUTHORIZATION_FAILED
    assert (partition.high_watermark, partition.records) == (-1, b"")


def test_a_topic_is_created_with_the_permission_on_the_cluster_or_on_the_topic(api: Api) -> None:
    def create(name: str, rule: Rule) -> int:
        api.authorize_with(Rules(rule))
        request = CreateTopicsRequest(topics=[CreatableTopic(name, 1, 1)])
        return int(exchange(api, request, 7).topics[0].error_code)

    assert create("a", lambda _, resource: resource == CLUSTER) == Error.NONE
    assert create("b", lambda _, resource: resource.kind is ResourceType.TOPIC) == Error.NONE
    assert create("c", deny_all) == Error.TOPIC_AUTHORIZATION_FAILED
    assert sorted(api.image.topics) == ["a", "b"]


def test_a_topic_is_not_created_by_a_client_that_may_only_describe_it(api: Api) -> None:
    api.authorize_with(Rules(lambda operation, _: operation is Operation.DESCRIBE))
    (topic,) = exchange(api, MetadataRequest(topics=[MetadataRequestTopic(name="new")]), 12).topics
    assert topic.error_code == Error.TOPIC_AUTHORIZATION_FAILED
    assert not api.image.topics


@pytest.mark.usefixtures("topics")
def test_groups_and_their_topics_are_hidden(api: Api) -> None:
    finish(api.groups.runtime.ensure_topic())
    for group in ("readers", "hidden"):
        offsets = [
            OffsetCommitRequestTopic(
                name=topic, partitions=[OffsetCommitRequestPartition(committed_offset=1)]
            )
            for topic in ("open", "secret")
        ]
        exchange(api, OffsetCommitRequest(group_id=group, topics=offsets), 8)
    api.authorize_with(Rules(allow_all_but("hidden")))
    assert [group.group_id for group in exchange(api, ListGroupsRequest(), 5).groups] == ["readers"]
    api.authorize_with(Rules(allow_all_but("secret")))
    groups = [OffsetFetchRequestGroup(group_id="readers", topics=None)]
    (group,) = exchange(api, OffsetFetchRequest(groups=groups), 8).groups
    assert [topic.name for topic in group.topics] == ["open"]


@pytest.mark.usefixtures("topics")
def test_one_denied_topic_keeps_a_transaction_from_taking_the_others(api: Api) -> None:
    finish(api.transactions.runtime.ensure_topic())
    producer = exchange(api, InitProducerIdRequest("id", 60_000), 4)
    api.authorize_with(Rules(allow_all_but("secret")))
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="id",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(topic, [0]) for topic in ("open", "secret")],
    )
    results = exchange(api, request, 3).results_by_topic_v3_and_below
    assert {result.name: result.results_by_partition[0].partition_error_code for result in results} == {
        "open": Error.OPERATION_NOT_ATTEMPTED,
        "secret": Error.TOPIC_AUTHORIZATION_FAILED,
    }


@pytest.mark.usefixtures("topics")
def test_authorized_operations_are_those_that_the_authorizer_allows(api: Api) -> None:
    api.authorize_with(Rules(lambda operation, _: operation in (Operation.DESCRIBE, Operation.READ)))
    request = MetadataRequest(topics=None, include_topic_authorized_operations=True)
    for topic in exchange(api, request, 12).topics:
        assert topic.topic_authorized_operations == 1 << Operation.DESCRIBE | 1 << Operation.READ
