"""Partitions, grouped as requests name them."""

from collections.abc import Iterable

from millrace.client import TopicPartition


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partition indexes of each topic."""
    grouped: dict[str, list[int]] = {}
    for topic, index in partitions:
        grouped.setdefault(topic, []).append(index)
    return grouped
