"""Members of the classic protocol in a consumer group: each joins and syncs by itself, at its own epoch.

There is no leader, and no member waits for others. A member's epoch is the generation it is told, what the
server has assigned is what it is given, and it is sent to join again for every step towards its target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millrace.errors import Error, KafkaError
from millrace.groups.classic_protocol import new_member_id
from millrace.groups.classic_requests import (
    JoinRequest,
    JoinResult,
    MemberIdentity,
    Offers,
    SyncRequest,
    SyncResult,
)
from millrace.groups.consumer import ConsumerGroup
from millrace.groups.consumer_member import ClassicSide, ConsumerMember, MemberState
from millrace.groups.consumer_protocol import ConsumerProtocol, check_static
from millrace.groups.draft import Draft
from millrace.groups.group import CONSUMER_PROTOCOL_TYPE, Client, Group
from millrace.groups.subscriptions import change_of
from millrace.groups.upgrade import partitions_of, read_subscription, write_assignment
from millrace.wire.messages.consumer_protocol import ConsumerProtocolSubscription

NO_MIGRATION = "disabled"


class MixedProtocol:
    """Owned by the broker loop; not thread-safe."""

    def __init__(self, consumer: ConsumerProtocol) -> None:
        self._consumer = consumer
        self._sessions = consumer.sessions

    # Joining

    def join(self, group: Group, client: Client, request: JoinRequest) -> JoinResult:
        group = _consumer(group, Error.INCONSISTENT_GROUP_PROTOCOL)
        if self._consumer.config.group_consumer_migration_policy == NO_MIGRATION:
            raise KafkaError(Error.INCONSISTENT_GROUP_PROTOCOL)
        offers = request.offers
        member_id = request.member_id or new_member_id(request.group_instance_id or client.client_id)
        self._consumer.check_room(group, member_id)
        if not group.supports_classic(request.protocol_type, (name for name, _ in offers)):
            raise KafkaError(Error.INCONSISTENT_GROUP_PROTOCOL)
        is_dynamic = request.group_instance_id is None
        if is_dynamic and not request.member_id and request.asks_for_id:
            return JoinResult(Error.MEMBER_ID_REQUIRED, member_id)
        subscription = read_subscription(offers[0][1])
        draft = Draft(group, self._consumer.topics)
        before = self._find_or_join(draft, request, member_id)
        after = _updated(before, client, request, subscription, offers)
        member = self._advance(draft, before, after, subscription)
        return JoinResult(
            member_id=member.member_id,
            generation=member.epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol=offers[0][0],
        )

    def _find_or_join(self, draft: Draft, request: JoinRequest, member_id: str) -> ConsumerMember:
        group, instance_id = draft.group, request.group_instance_id
        if instance_id is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        known = group.static_member(instance_id)
        if request.member_id:
            return check_static(known, member_id, instance_id)
        if known is None:
            return ConsumerMember(member_id)
        return self._consumer.replace_static(draft, known, member_id)

    def _advance(
        self,
        draft: Draft,
        before: ConsumerMember,
        after: ConsumerMember,
        subscription: ConsumerProtocolSubscription,
    ) -> ConsumerMember:
        if after != before:
            draft.subscribe(after)
        regex_change = change_of(draft.group, before, after)
        draft.drop_unused_regexes((before.topic_regex,))
        owned = partitions_of(subscription.owned_partitions, self._consumer.topics)
        member = self._consumer.advance(draft, before, after, owned, regex_change)
        group = self._consumer.write(draft)
        group.seen_topics_version = self._consumer.topics.version
        self._sessions.keep_alive(group.group_id, member)
        self._sessions.expect_sync(group.group_id, member)
        # It may have taken the place of the last member that spoke the consumer protocol.
        self._consumer.downgrade_if_due(group)
        return member

    # Syncing

    def sync(self, group: Group, request: SyncRequest) -> SyncResult:
        group = _consumer(group, Error.UNKNOWN_MEMBER_ID)
        member, classic = _classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation)
        name, metadata = classic.offers[0]
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol not in (
            None,
            name,
        ):
            raise KafkaError(Error.INCONSISTENT_GROUP_PROTOCOL)
        if member.epoch < group.assignment_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._sessions.expect_join(group.group_id, member)
            raise KafkaError(Error.REBALANCE_IN_PROGRESS)
        self._sessions.synced(group.group_id, member.member_id)
        self._sessions.keep_alive(group.group_id, member)
        return SyncResult(
            protocol_type=request.protocol_type,
            protocol=request.protocol,
            assignment=write_assignment(member.assigned, self._consumer.topics, metadata),
        )

    # Heartbeats

    def heartbeat(self, group: Group, identity: MemberIdentity, generation: int) -> None:
        group = _consumer(group, Error.UNKNOWN_MEMBER_ID)
        member, _ = _classic_member(group, *identity)
        _check_generation(member, generation)
        self._sessions.keep_alive(group.group_id, member)
        if (
            member.epoch < group.assignment_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or group.waits_in_vain(member)
        ):
            self._sessions.expect_join(group.group_id, member)
            raise KafkaError(Error.REBALANCE_IN_PROGRESS)

    # Leaving

    def leave(self, group: Group, leavers: Sequence[MemberIdentity]) -> list[Error]:
        group = _consumer(group, Error.UNKNOWN_MEMBER_ID)
        leaving: list[str] = []
        outcomes: list[Error] = []
        for leaver in leavers:
            try:
                leaving.append(_leaving_member(group, leaver).member_id)
                outcomes.append(Error.NONE)
            except KafkaError as error:
                outcomes.append(error.error)
        self._consumer.fence(group.group_id, leaving, "it has left")
        return outcomes


def _consumer(group: Group, error: Error) -> ConsumerGroup:
    if not isinstance(group, ConsumerGroup):
        raise KafkaError(error)
    return group


def _updated(
    member: ConsumerMember,
    client: Client,
    request: JoinRequest,
    subscription: ConsumerProtocolSubscription,
    offers: Offers,
) -> ConsumerMember:
    return replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        client_id=client.client_id,
        client_host=client.host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=frozenset(subscription.topics),
        topic_regex="",
        classic=ClassicSide(request.session_timeout_ms, offers),
    )


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicSide]:
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = check_static(group.static_member(instance_id), member_id, instance_id)
    if member.classic is None:
        raise KafkaError(
            Error.UNKNOWN_MEMBER_ID, f"Member {member.member_id} does not use the classic protocol."
        )
    return member, member.classic


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise KafkaError(Error.ILLEGAL_GENERATION)


def _leaving_member(group: ConsumerGroup, leaver: MemberIdentity) -> ConsumerMember:
    if leaver.group_instance_id is None:
        return group.member(leaver.member_id)
    known = group.static_member(leaver.group_instance_id)
    # An administrator removes a static member by its instance id alone.
    member_id = leaver.member_id or (known.member_id if known is not None else "")
    return check_static(known, member_id, leaver.group_instance_id)
