"""Partitions as a command line names them."""

from collections.abc import Iterable

from millrace.admin.topics import existing_topics
from millrace.cli.terminal.errors import CommandError
from millrace.client import Client, TopicPartition


async def parse_partitions(client: Client, texts: Iterable[str]) -> tuple[list[TopicPartition], list[str]]:
    """Parse `topic` and `topic:0,1,2` into partitions; also returns topics that do not exist."""
    parsed = [_parse_topic(text) for text in texts]
    existing = await existing_topics(client, {topic for topic, indexes in parsed if indexes is None})
    partitions: list[TopicPartition] = []
    missing = []
    for topic, indexes in parsed:
        if indexes is not None:
            partitions += [TopicPartition(topic, index) for index in indexes]
        elif topic in existing:
            partitions += existing[topic].topic_partitions
        else:
            missing.append(topic)
    return partitions, missing


def _parse_topic(text: str) -> tuple[str, list[int] | None]:
    """A topic and its named indexes; None stands for all partitions."""
    topic, *indexes = text.split(":")
    if not indexes:
        return topic, None
    if len(indexes) != 1 or not topic:
        raise CommandError(f"Invalid topic arg '{text}', expected topic name and partitions")
    parsed = []
    for index in indexes[0].split(","):
        if not index.isdecimal():
            raise CommandError(f"Invalid partition '{index}' specified in topic arg '{text}'")
        parsed.append(int(index))
    return topic, parsed
