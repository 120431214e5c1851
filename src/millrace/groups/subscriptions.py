"""Subscriptions by regular expression: checked when a member brings one, matched with topics apart from it.

The syntax is RE2's, which clients are told to use: it has no expression that takes exponential time, so that
no client can stall the broker with one.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from enum import Enum
from typing import Any

from millrace.errors import Error, KafkaError
from millrace.groups.consumer import ConsumerGroup
from millrace.groups.consumer_member import ConsumerMember

logger = logging.getLogger(__name__)

# Topics may come in crowds: expressions that match them already wait for the crowd to be complete.
REFRESH_INTERVAL_MS = 10_000


class RegexChange(Enum):
    """The change of a member's subscription by regular expression."""

    NONE = "none"
    UNRESOLVED = "unresolved"
    """It has another, whose topics are not known yet: the group's next epoch can wait for them."""
    RESOLVED = "resolved"
    """It has another whose topics are known, or none any more."""


def change_of(group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember) -> RegexChange:
    """Compare a member's subscriptions. An expression that is new to the group must be valid."""
    if after.topic_regex == before.topic_regex:
        return RegexChange.NONE
    if not after.topic_regex or after.topic_regex in group.resolved:
        return RegexChange.RESOLVED
    if after.topic_regex not in group.regexes:
        check(after.topic_regex)
    return RegexChange.UNRESOLVED


def needs_resolving(group: ConsumerGroup, topics_version: int, now_ms: int) -> bool:
    """Whether expressions are to be matched: those that never were at once, the others when topics change."""
    if not group.regexes:
        return False
    if group.regexes.keys() - group.resolved.keys():
        return True
    if group.resolved_topics_version == topics_version:
        return False
    last_ms = max(resolved.timestamp_ms for resolved in group.resolved.values())
    return now_ms > last_ms + REFRESH_INTERVAL_MS


def check(regex: str) -> None:
    """Raise INVALID_REGULAR_EXPRESSION unless RE2 understands it."""
    import re2

    try:
        re2.compile(regex, options=_options())
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if error.args else "not understood"
        raise KafkaError(
            Error.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {reason}.",
        ) from error


def match(regexes: Collection[str], names: Iterable[str]) -> dict[str, frozenset[str]]:
    """The names that each expression matches from end to end; all are tried in one pass over each name."""
    import re2

    matching = re2.Set.FullMatchSet(_options())
    found: dict[str, set[str]] = {}
    for regex in regexes:
        try:
            matching.Add(regex)
            found[regex] = set()
        except re2.error:
            # A broker that understood it wrote it.
            logger.warning("the regular expression %r is not understood here: it matches nothing", regex)
    matching.Compile()
    matched = list(found.values())
    for name in names:
        for number in matching.Match(name) or ():
            matched[number].add(name)
    return {regex: frozenset(found.get(regex, ())) for regex in regexes}


def _options() -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    return options
