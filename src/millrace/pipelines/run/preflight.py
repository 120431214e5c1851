"""Checks that need no Spark: whether the broker answers, and whether it has the topics that pipelines read.

Spark takes seconds to start, and would start only to find the same error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import sleep

from millrace.pipelines.decorator import Pipeline
from millrace.pipelines.errors import BrokerUnavailable, PipelineError
from millrace.pipelines.kafka import client, offsets
from millrace.pipelines.topics.names import listed_names

RETRY_SECONDS = 0.5


def check(pipelines: Iterable[Pipeline], bootstrap: str) -> None:
    """Raise unless the broker answers and has all topics that the pipelines read."""
    client.require_reachable(bootstrap)
    readers = _readers(pipelines)
    with client.explained(bootstrap):
        found = offsets.partitions(client.admin(bootstrap), readers)
    missing = [topic for topic, partitions in found.items() if not partitions]
    if missing:
        raise _missing_topics({topic: readers[topic] for topic in missing}, bootstrap)


def wait_for_broker(bootstrap: str, on_wait: Callable[[BrokerUnavailable], None]) -> None:
    """Wait until the broker accepts connections; `on_wait` is called once if it does not at first."""
    is_first = True
    while True:
        try:
            client.require_reachable(bootstrap)
            return
        except BrokerUnavailable as error:
            if is_first:
                on_wait(error)
            is_first = False
            sleep(RETRY_SECONDS)


def _readers(pipelines: Iterable[Pipeline]) -> dict[str, str]:
    """The topics that the pipelines read by name, each with a pipeline that reads it."""
    return {
        name: pipeline.name
        for pipeline in pipelines
        for topic in pipeline.inputs.values()
        if not topic.pattern
        for name in listed_names(topic)
    }


def _missing_topics(readers: dict[str, str], bootstrap: str) -> PipelineError:
    if len(readers) == 1:
        [(topic, pipeline)] = readers.items()
        return PipelineError(
            f"{pipeline} reads {topic}, but there is no topic {topic} at {bootstrap};"
            f" create it with `millrace topics --create --topic {topic}`"
        )
    commands = "; ".join(f"millrace topics --create --topic {topic}" for topic in sorted(readers))
    return PipelineError(
        f"there are no topics {', '.join(sorted(readers))} at {bootstrap}; create them: {commands}"
    )
