"""Preparing the log for a topology: the topics that it keeps for itself."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from millrace.topologies.model.bolts import StatefulBolt
from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.log import LogBolt, LogSpout
from millrace.topologies.model.topology import Plan
from millrace.topologies.runtime import topics
from millrace.topologies.runtime.held import holds_state

TIMEOUT_SECONDS = 30.0
# Deleted below what is committed only: time and size say nothing about what a worker still has to read.
_LARGE = {"max.message.bytes": str(topics.MAX_RECORD_BYTES)}
_EDGE_CONFIG = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete", **_LARGE}
_METRICS_CONFIG = {"retention.ms": str(2 * 24 * 3600 * 1000), "segment.ms": str(3600 * 1000)}
_SAMPLE_CONFIG = {"retention.ms": str(3600 * 1000), "segment.ms": str(600 * 1000)}
_STATE_CONFIG = {"cleanup.policy": "compact", **_LARGE}


def create_topics(plan: Plan, workers: int, bootstrap: str, client: Mapping[str, str]) -> None:
    """Create the topics that do not exist yet: edges, changelogs, dead letters and outputs."""
    admin = AdminClient({**client, "bootstrap.servers": bootstrap})
    try:
        known = admin.list_topics(timeout=TIMEOUT_SECONDS).topics
    except KafkaException as error:
        raise TopologyError(
            f"the log at {bootstrap} does not answer: {error.args[0].str()}; is it running, "
            "and is --bootstrap-server right?"
        ) from error
    _check_sources(plan, known)
    acks = topics.ack_topic(plan.name)
    if acks in known and len(known[acks].partitions) < workers:
        _finish(admin.create_partitions([NewPartitions(acks, workers)]))
    missing = [topic for topic in _topics(plan, workers) if topic.topic not in known]
    if missing:
        _finish(admin.create_topics(missing))


def _finish(changes: Mapping[str, Future[None]]) -> None:
    for name, change in changes.items():
        try:
            change.result(TIMEOUT_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise TopologyError(f"the topic {name} cannot be created: {error.args[0].str()}") from error


def _check_sources(plan: Plan, known: Mapping[str, object]) -> None:
    for component in plan.spouts:
        spec = plan.components[component]
        if issubclass(spec.component, LogSpout):
            spec.component(*spec.arguments, **spec.keywords).topics_among(known)


def _topics(plan: Plan, workers: int) -> list[NewTopic]:
    name = plan.name
    dead_letters = {topics.dead_letter_topic(plan, component) for component in plan.components}
    found = [
        *(NewTopic(topic, 1) for topic in sorted(dead_letters)),
        NewTopic(topics.ack_topic(name), workers, config=_EDGE_CONFIG),
        NewTopic(topics.control_topic(name), 1, config=_STATE_CONFIG),
        NewTopic(topics.sample_topic(name), 1, config=_SAMPLE_CONFIG),
        NewTopic(topics.METRICS, 1, config=_METRICS_CONFIG),
    ]
    for component in plan.spouts:
        spec = plan.components[component]
        if issubclass(spec.component, LogSpout) and spec.component.creates_topic:
            spout = spec.component(*spec.arguments, **spec.keywords)
            found += [NewTopic(topic, spec.tasks) for topic in spout.topics_among(())]
    for component in plan.bolts:
        spec = plan.components[component]
        found.append(NewTopic(topics.edge_topic(name, component), spec.tasks, config=_EDGE_CONFIG))
        if issubclass(spec.component, StatefulBolt):
            found.append(NewTopic(topics.state_topic(name, component), spec.tasks, config=_STATE_CONFIG))
        if holds_state(plan, component):
            found.append(NewTopic(topics.held_topic(name, component), spec.tasks, config=_STATE_CONFIG))
        if issubclass(spec.component, LogBolt):
            with contextlib.suppress(TypeError):
                bolt = spec.component(*spec.arguments, **spec.keywords)
                if isinstance(bolt.topic, str):
                    found.append(NewTopic(bolt.topic, -1, -1))
    return found
