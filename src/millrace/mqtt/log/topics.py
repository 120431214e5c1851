"""The log topics of the MQTT server: creates those that are missing, and finds their partitions and ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from millrace.mqtt.log.clients import QUIET
from millrace.mqtt.messages import Positions, Source
from millrace.mqtt.settings import RETAINED_TOPIC, SESSIONS_TOPIC

if TYPE_CHECKING:
    from millrace.mqtt.settings import Settings

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
READY_SECONDS = 30.0
RETRY_SECONDS = 0.2
BROKER_DEFAULT = -1


class LogUnavailable(Exception):
    """The log cannot be used; the text says why."""


def prepare_topics(settings: Settings) -> Positions:
    """Create the topics that do not exist yet; returns the ends of all. Blocks. Raises LogUnavailable."""
    admin = AdminClient({**QUIET, **settings.properties, "bootstrap.servers": settings.bootstrap})
    wanted = {name: NewTopic(name, BROKER_DEFAULT) for name in settings.rules.log_topics}
    for name in (SESSIONS_TOPIC, RETAINED_TOPIC):
        wanted[name] = NewTopic(name, 1, config={"cleanup.policy": "compact"})
    try:
        known = admin.list_topics(timeout=CONNECT_SECONDS).topics
        missing = [topic for name, topic in wanted.items() if name not in known]
        if missing:
            _settle(admin.create_topics(missing), KafkaError.TOPIC_ALREADY_EXISTS)
        return _ends(admin, wanted)
    except KafkaException as error:
        reason = error.args[0].str()
        raise LogUnavailable(f"the log at {settings.bootstrap} cannot be used: {reason}") from error


def _settle(futures: Mapping[Any, Future[Any]], *accepted: int) -> dict[Any, Any]:
    """Wait for the results; errors with these codes are accepted."""
    results = {}
    for key, future in futures.items():
        try:
            results[key] = future.result()
        except KafkaException as error:
            if error.args[0].code() not in accepted:
                raise
    return results


def _ends(admin: AdminClient, topics: Iterable[str]) -> Positions:
    """The end of each partition, as readers of committed records see it."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            return _listed(admin, topics)
        except KafkaException as error:
            # A new topic has no leaders for a moment.
            if time.monotonic() > deadline:
                raise
            logger.debug("the topics are not ready: %s", error)
            time.sleep(RETRY_SECONDS)


def _listed(admin: AdminClient, topics: Iterable[str]) -> Positions:
    known = admin.list_topics(timeout=CONNECT_SECONDS).topics
    partitions = []
    for name in topics:
        if name not in known or not known[name].partitions:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        partitions += [TopicPartition(name, index) for index in known[name].partitions]
    wanted = {partition: OffsetSpec.latest() for partition in partitions}
    listed = _settle(admin.list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED))
    return {Source(at.topic, at.partition): found.offset for at, found in listed.items()}
