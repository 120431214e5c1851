"""The topics of DRPC: a topic of calls for each function, and one of replies for all."""

from __future__ import annotations

REQUESTS = "_drpc.requests."
REPLIES = "_drpc.replies"
REASON = "reason"
"""The header of a reply that says why a call failed."""


def request_topic(function: str) -> str:
    """The topic of the calls of a function."""
    return f"{REQUESTS}{function}"


def function_of(topic: str) -> str | None:
    """The function whose calls a topic holds; None for other topics."""
    return topic.removeprefix(REQUESTS) if topic.startswith(REQUESTS) else None
