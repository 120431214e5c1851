"""Topic names and topic filters: what MQTT allows, and which name a filter matches."""

from __future__ import annotations

from typing import NamedTuple

from millrace.mqtt.packets.reasons import PacketError, Reason

SHARED = "$share/"
MAX_LEVELS = 128
"""A topic of 65,535 slashes would cost much more to match than to send."""


class SharedFilter(NamedTuple):
    """A filter `$share/group/filter`: each message goes to one member of the group."""

    group: str
    filter: str


def check_name(topic: str) -> None:
    """Raise PacketError unless messages can be published to this topic."""
    if not topic:
        raise PacketError("the topic is empty", Reason.TOPIC_NAME_INVALID)
    if "+" in topic or "#" in topic:
        raise PacketError(f"topic {topic[:100]!r} contains a wildcard", Reason.TOPIC_NAME_INVALID)
    if topic.count("/") >= MAX_LEVELS:
        raise PacketError(
            f"topic {topic[:100]!r} has more than {MAX_LEVELS} levels", Reason.TOPIC_NAME_INVALID
        )


def check_filter(topic_filter: str) -> None:
    """Raise PacketError unless clients can subscribe to this filter."""
    if topic_filter.startswith(SHARED):
        group, filter_ = _split_shared(topic_filter)
        if not group or "+" in group or "#" in group or not filter_:
            raise PacketError(
                f"shared subscription {topic_filter[:100]!r} is not $share/GROUP/FILTER",
                Reason.TOPIC_FILTER_INVALID,
            )
        topic_filter = filter_
    if not topic_filter:
        raise PacketError("a topic filter is empty", Reason.TOPIC_FILTER_INVALID)
    levels = topic_filter.split("/")
    if len(levels) > MAX_LEVELS:
        raise PacketError(
            f"topic filter {topic_filter[:100]!r} has more than {MAX_LEVELS} levels",
            Reason.TOPIC_FILTER_INVALID,
        )
    for index, level in enumerate(levels):
        if ("#" in level and (level != "#" or index + 1 < len(levels))) or ("+" in level and level != "+"):
            raise PacketError(
                f"topic filter {topic_filter[:100]!r} has a wildcard in a wrong place",
                Reason.TOPIC_FILTER_INVALID,
            )


def is_shared(topic_filter: str) -> bool:
    return topic_filter.startswith(SHARED)


def shared(topic_filter: str) -> SharedFilter | None:
    """The parts of a shared subscription's filter, or None if it is an ordinary one."""
    return _split_shared(topic_filter) if topic_filter.startswith(SHARED) else None


def _split_shared(topic_filter: str) -> SharedFilter:
    group, _, filter_ = topic_filter[len(SHARED) :].partition("/")
    return SharedFilter(group, filter_)


def matches(topic_filter: str, topic: str) -> bool:
    """Whether a filter matches a topic. Wildcards at the start do not match topics that start with $."""
    if topic.startswith("$") and topic_filter[0] in "+#":
        return False
    filter_levels, levels = topic_filter.split("/"), topic.split("/")
    for index, wanted in enumerate(filter_levels):
        if wanted == "#":
            return True
        if index >= len(levels) or wanted not in ("+", levels[index]):
            return False
    return len(filter_levels) == len(levels)
