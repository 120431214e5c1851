"""The names of the topics that a declaration covers."""

from __future__ import annotations

from millrace.pipelines.kafka import offsets
from millrace.pipelines.topics.declaration import LogTopic


def topic_names(topic: LogTopic, bootstrap: str) -> list[str]:
    """The topics that match a pattern, or those of a comma-separated list."""
    return offsets.matching(bootstrap, topic.name) if topic.pattern else listed_names(topic)


def listed_names(topic: LogTopic) -> list[str]:
    """The topics of a comma-separated list."""
    return [name.strip() for name in topic.name.split(",")]
