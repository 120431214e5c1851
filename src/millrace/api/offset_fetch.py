"""OffsetFetch v1-10. v2: null for all. v6: flexible. v7: stable offsets. v8: several groups. v10: ids."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from millrace.api.context import Context
from millrace.deferred import Eventual, gather
from millrace.errors import Error, KafkaError
from millrace.groups.shard import GroupShard
from millrace.security.authorizer import Resource
from millrace.security.operations import Operation, ResourceType
from millrace.steps import Steps, each
from millrace.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from millrace.wire.schema import ZERO_UUID

GROUP_ERRORS_FROM = 2
SEVERAL_GROUPS_FROM = 8
TOPIC_IDS_FROM = 10
NO_OFFSET = -1

TopicKey = tuple[str, bytes]
"""A topic's name or, from v10 on, its id."""


@dataclass(slots=True)
class _Wanted:
    """The offsets that a request wants of one group.

    A group, topic or partition that is named twice is answered once: a response may be many times as long as
    its request.
    """

    group_id: str
    member_id: str | None = None
    member_epoch: int = -1
    all_topics: bool = False
    topics: dict[TopicKey, dict[int, None]] = field(default_factory=dict)

    def add(self, topics: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None) -> Steps[None]:
        if topics is None:
            self.all_topics = True
            return
        for topic in topics:
            topic_id = topic.topic_id if isinstance(topic, OffsetFetchRequestTopics) else ZERO_UUID
            indexes = self.topics.setdefault((topic.name, topic_id), {})
            indexes.update(dict.fromkeys(topic.partition_indexes))
            yield


def handle(ctx: Context, request: OffsetFetchRequest) -> Steps[Eventual[OffsetFetchResponse]]:
    if ctx.api_version >= SEVERAL_GROUPS_FROM:
        groups: list[Eventual[OffsetFetchResponseGroup]] = []
        for wanted in (yield from _wanted_of_groups(request.groups)):
            groups.append((yield from _fetch_group(ctx, wanted, request.require_stable)))
            yield
        return gather(groups, lambda fetched: OffsetFetchResponse(groups=fetched))
    only = _Wanted(request.group_id)
    yield from only.add(request.topics)
    group = yield from _fetch_group(ctx, only, request.require_stable)
    return gather([group], lambda fetched: _of_one_group(*fetched))


def _of_one_group(group: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    topics = [OffsetFetchResponseTopic(topic.name, topic.partitions) for topic in group.topics]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


def _wanted_of_groups(groups: Iterable[OffsetFetchRequestGroup]) -> Steps[Iterable[_Wanted]]:
    by_group: dict[str, _Wanted] = {}
    for group in groups:
        wanted = by_group.get(group.group_id)
        if wanted is None:
            wanted = _Wanted(group.group_id, group.member_id, group.member_epoch)
            by_group[group.group_id] = wanted
        yield from wanted.add(group.topics)
        yield
    return by_group.values()


def _fetch_group(
    ctx: Context, wanted: _Wanted, require_stable: bool
) -> Steps[Eventual[OffsetFetchResponseGroup]]:
    response = OffsetFetchResponseGroup(group_id=wanted.group_id)
    leadership = ctx.services.groups.runtime.leadership(wanted.group_id)
    try:
        shard = ctx.services.groups.runtime.shard_of(wanted.group_id)
        group = shard.find(wanted.group_id)
        if group is not None:
            group.validate_fetch(wanted.member_id, wanted.member_epoch)
    except KafkaError as error:
        response.error_code = error.error
        if ctx.api_version < GROUP_ERRORS_FROM:
            for (name, _), indexes in wanted.topics.items():
                response.topics.append((yield from _failed(name, ZERO_UUID, indexes, error.error)))
        return response
    reading = _Reading(ctx, shard, wanted.group_id, require_stable)
    response.topics = yield from reading.all() if wanted.all_topics else reading.some(wanted.topics)
    # An offset that is not committed yet may be lost, and must not be where a consumer begins.
    return ctx.services.groups.settled(
        wanted.group_id,
        response,
        lambda error: OffsetFetchResponseGroup(wanted.group_id, error_code=error.error),
        since=leadership,
    )


class _Reading:
    """Reads the offsets of one group."""

    def __init__(self, ctx: Context, shard: GroupShard, group_id: str, require_stable: bool) -> None:
        self._ctx = ctx
        self._offsets = shard.offsets
        self._group_id = group_id
        self._require_stable = require_stable

    def all(self) -> Steps[list[OffsetFetchResponseTopics]]:
        by_name: dict[str, list[int]] = {}
        for name, index in list(self._offsets.of_group(self._group_id)):
            by_name.setdefault(name, []).append(index)
            yield
        topics = []
        for name in sorted(by_name):
            if not self._may_see(name):
                continue
            known = self._ctx.image.topics.get(name)
            if known is None and self._ctx.api_version >= TOPIC_IDS_FROM:
                continue
            topic_id = ZERO_UUID if known is None else known.topic_id
            topics.append((yield from self._topic(name, topic_id, sorted(by_name[name]))))
        return topics

    def some(self, wanted: dict[TopicKey, dict[int, None]]) -> Steps[list[OffsetFetchResponseTopics]]:
        topics = []
        for (name, topic_id), indexes in wanted.items():
            if self._ctx.api_version >= TOPIC_IDS_FROM:
                known = self._ctx.image.by_id.get(topic_id)
                if known is None:
                    topics.append((yield from _failed(name, topic_id, indexes, Error.UNKNOWN_TOPIC_ID)))
                    continue
                name = known.name
            if self._may_see(name):
                topics.append((yield from self._topic(name, topic_id, indexes)))
            else:
                error = Error.TOPIC_AUTHORIZATION_FAILED
                topics.append((yield from _failed(name, topic_id, indexes, error)))
        return topics

    def _may_see(self, topic: str) -> bool:
        return self._ctx.allows(Operation.DESCRIBE, Resource(ResourceType.TOPIC, topic))

    def _topic(self, name: str, topic_id: bytes, indexes: Iterable[int]) -> Steps[OffsetFetchResponseTopics]:
        def read(index: int) -> OffsetFetchResponsePartition:
            return self._partition(name, index)

        partitions = yield from each(indexes, read)
        yield
        return OffsetFetchResponseTopics(name, topic_id, partitions)

    def _partition(self, topic: str, index: int) -> OffsetFetchResponsePartition:
        response = OffsetFetchResponsePartition(index, NO_OFFSET, metadata="")
        if self._require_stable and self._offsets.is_pending(self._group_id, topic, index):
            response.error_code = Error.UNSTABLE_OFFSET_COMMIT
            return response
        committed = self._offsets.get(self._group_id, topic, index)
        if committed is not None:
            response.committed_offset = committed.offset
            response.committed_leader_epoch = committed.leader_epoch
            response.metadata = committed.metadata
        return response


def _failed(
    name: str, topic_id: bytes, indexes: Iterable[int], error: Error
) -> Steps[OffsetFetchResponseTopics]:
    def fail(index: int) -> OffsetFetchResponsePartition:
        return OffsetFetchResponsePartition(index, NO_OFFSET, metadata="", error_code=error)

    partitions = yield from each(indexes, fail)
    yield
    return OffsetFetchResponseTopics(name, topic_id, partitions)
