"""Partitions: which there are, where they begin and end, and how a command line names them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from millrace.cli.client import Client
from millrace.cli.errors import CommandError, check
from millrace.cli.offsets import ByLeader, Place, list_offsets
from millrace.errors import Error
from millrace.wire.messages.list_offsets import ListOffsetsPartitionResponse


def leaders_of(client: Client, topics: Iterable[str]) -> dict[Place, int]:
    """Every partition of those topics that exist, with its leader; a negative one is none."""
    wanted = sorted(topics)
    if not wanted:
        return {}
    leaders = {}
    for topic in client.metadata(wanted).topics:
        if topic.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION or topic.name is None:
            continue
        check(topic.error_code)
        for partition in topic.partitions:
            leaders[topic.name, partition.partition_index] = partition.leader_id
    return leaders


def offsets_at(
    client: Client, leaders: Mapping[Place, int], timestamp: int
) -> dict[Place, ListOffsetsPartitionResponse]:
    """What each partition's leader answers for a timestamp, or for LATEST or EARLIEST."""
    by_leader: ByLeader = defaultdict(list)
    for place, leader_id in sorted(leaders.items()):
        by_leader[leader_id].append(place)
    return list_offsets(client, by_leader, timestamp)


def parse_topic(text: str) -> tuple[str, list[int] | None]:
    """`topic` or `topic:0,1,2`; None stands for all partitions."""
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


def name_of(place: Place) -> str:
    """`topic-0`, as Kafka writes a partition."""
    return f"{place[0]}-{place[1]}"
