"""The log topics of the MQTT server: creates those that are missing, and finds their partitions and ends."""

from __future__ import annotations

from collections.abc import Iterable

from millrace.admin.offsets import LATEST, Isolation, list_offsets
from millrace.admin.topics import NewTopic, create_topics, existing_topics, wait_for_topics
from millrace.client import Client, TopicPartition
from millrace.errors import Error
from millrace.mqtt.messages import Positions, Source
from millrace.mqtt.settings import RETAINED_TOPIC, SESSIONS_TOPIC, Settings

_COMPACTED = {"cleanup.policy": "compact"}


async def prepare_topics(client: Client, settings: Settings) -> None:
    """Create the topics that do not exist yet."""
    wanted = [NewTopic(name) for name in settings.rules.log_topics]
    wanted += [NewTopic(name, partitions=1, configs=_COMPACTED) for name in (SESSIONS_TOPIC, RETAINED_TOPIC)]
    present = await existing_topics(client, [topic.name for topic in wanted])
    missing = [topic for topic in wanted if topic.name not in present]
    if not missing:
        return
    outcomes = await create_topics(client, missing)
    for error in outcomes.failed.values():
        if error.error is not Error.TOPIC_ALREADY_EXISTS:
            raise error
    await wait_for_topics(client, [topic.name for topic in missing])


async def ends(client: Client, topics: Iterable[str]) -> Positions:
    """The end of each partition of these topics, as readers of committed records see it."""
    described = await existing_topics(client, topics)
    partitions = [partition for topic in described.values() for partition in topic.topic_partitions]
    wanted: dict[TopicPartition, int] = dict.fromkeys(partitions, LATEST)
    listed = (await list_offsets(client, wanted, isolation=Isolation.READ_COMMITTED)).all()
    return {Source(at.topic, at.partition): found.offset or 0 for at, found in listed.items()}
