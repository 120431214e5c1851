"""The rules for topics: their names, ids, partitions, replicas and configs.

Every metadata store checks a change here, against its current image, before it makes the change durable.
"""

import base64
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from millrace.cluster.image import INTERNAL_TOPICS, ClusterImage, PartitionState, TopicImage
from millrace.cluster.placement import place_replicas
from millrace.config import BrokerConfig, ConfigError, LogConfig
from millrace.errors import Error, KafkaError
from millrace.wire.schema import ZERO_UUID

MAX_NAME_LENGTH = 249
MAX_PARTITIONS_PER_REQUEST = 10_000
DEFAULT = -1
"""A number of partitions or replicas that the caller leaves to the broker."""
# The log of KRaft controllers, which a data directory written by Kafka may hold.
CONTROLLER_TOPIC = "__cluster_metadata"

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
# Kafka reserves this id.
_METADATA_TOPIC_ID = bytes(15) + b"\x01"


def new_uuid() -> bytes:
    """A random id that is not reserved and whose text does not look like a command-line flag."""
    while True:
        candidate = uuid.uuid4().bytes
        if candidate in (ZERO_UUID, _METADATA_TOPIC_ID):
            continue
        if not base64.urlsafe_b64encode(candidate).startswith(b"-"):
            return candidate


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION for a name that Kafka does not allow."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        reason = f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    elif not _LEGAL_NAME.fullmatch(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def collision_key(name: str) -> str:
    """Names with the same key collide, because metric names cannot tell a dot from an underscore."""
    return name.replace(".", "_")


def check_partition_count(count: int) -> None:
    if count <= 0:
        raise KafkaError(
            Error.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    check_total_partitions(count)


def check_total_partitions(count: int) -> None:
    """Raise POLICY_VIOLATION for more partitions than one request may create."""
    if count > MAX_PARTITIONS_PER_REQUEST:
        raise KafkaError(Error.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def check_replication_factor(factor: int, brokers: int) -> None:
    if factor <= 0:
        raise KafkaError(
            Error.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if factor > brokers:
        raise KafkaError(
            Error.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} "
            f"cannot be reached because only {brokers} broker(s) are registered.",
        )


def check_assignments(assignments: Mapping[int, Sequence[int]], brokers: Sequence[int]) -> None:
    """Check the brokers that a new topic's partitions are assigned to."""
    if sorted(assignments) != list(range(len(assignments))):
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    for replicas in assignments.values():
        check_replicas(replicas, brokers)
    if len({len(replicas) for replicas in assignments.values()}) > 1:
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment gives partitions different numbers of replicas.",
        )


def check_replicas(replicas: Sequence[int], brokers: Sequence[int]) -> None:
    if not replicas:
        reason = "an empty replica list"
    elif unknown := [broker for broker in replicas if broker not in brokers]:
        reason = f"broker {unknown[0]}, but no such broker is registered"
    elif len(set(replicas)) < len(replicas):
        reason = f"the broker {replicas[0]} more than once"
    else:
        return
    raise KafkaError(Error.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {reason}.")


# Changes, checked on an image


def new_topic(
    image: ClusterImage,
    config: BrokerConfig,
    name: str,
    partitions: int = DEFAULT,
    replication_factor: int = DEFAULT,
    *,
    configs: Mapping[str, str] | None = None,
    assignments: Mapping[int, Sequence[int]] | None = None,
) -> TopicImage:
    """The topic as requested; raises KafkaError if it cannot be created."""
    _check_new_name(image, name)
    replicas = _new_replicas(image, config, partitions, replication_factor, assignments)
    settings = dict(configs or {})
    check_topic_configs(config, settings)
    return TopicImage(name, _unused_topic_id(image), first_states(replicas), settings)


def grown_topic(
    image: ClusterImage, name: str, count: int, assignments: Sequence[Sequence[int]] | None
) -> TopicImage:
    """A topic with its number of partitions raised to `count`."""
    topic = image.topic(name)
    if count == topic.partitions:
        raise KafkaError(Error.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
    if count < topic.partitions:
        raise KafkaError(
            Error.INVALID_PARTITIONS,
            f"The topic {name} currently has {topic.partitions} partition(s); "
            f"{count} would not be an increase.",
        )
    added = count - topic.partitions
    check_partition_count(added)
    if assignments is None:
        assignments = place_replicas(
            tuple(image.brokers), added, topic.replication_factor, topic.partitions, _racks(image)
        )
    else:
        _check_additions(image, added, assignments)
    return replace(topic, states=topic.states + first_states(assignments))


def first_states(replicas: Sequence[Sequence[int]]) -> tuple[PartitionState, ...]:
    """The states of new partitions: the first replica leads, and all are in sync."""
    return tuple(PartitionState(tuple(brokers), brokers[0], 0, tuple(brokers)) for brokers in replicas)


def check_auto_creation(config: BrokerConfig, name: str) -> None:
    """Raise unless a topic may be created because a client named it."""
    if not config.auto_create_topics_enable or name in INTERNAL_TOPICS or name == CONTROLLER_TOPIC:
        check_topic_name(name)
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)


def check_topic_configs(config: BrokerConfig, settings: Mapping[str, str]) -> LogConfig:
    """The configuration of a topic's logs: its own settings over those of the broker."""
    try:
        return config.log_config(dict(settings))
    except ConfigError as error:
        raise KafkaError(Error.INVALID_CONFIG, str(error)) from error


def _check_new_name(image: ClusterImage, name: str) -> None:
    check_topic_name(name)
    if name == CONTROLLER_TOPIC:
        raise KafkaError(Error.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    if name in image.topics:
        raise KafkaError(Error.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if "." not in name and "_" not in name:
        return
    key = collision_key(name)
    for other in image.topics:
        if collision_key(other) == key:
            raise KafkaError(
                Error.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
            )


def _new_replicas(
    image: ClusterImage,
    config: BrokerConfig,
    partitions: int,
    replication_factor: int,
    assignments: Mapping[int, Sequence[int]] | None,
) -> Sequence[Sequence[int]]:
    """The brokers of each partition of a new topic."""
    brokers = tuple(image.brokers)
    if assignments:
        if replication_factor != DEFAULT or partitions != DEFAULT:
            unset = "replication factor" if replication_factor != DEFAULT else "numPartitions"
            raise KafkaError(
                Error.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {unset} was not set to -1.",
            )
        check_assignments(assignments, brokers)
        return [assignments[index] for index in range(len(assignments))]
    if replication_factor == DEFAULT:
        # A default meant for a larger cluster is no reason to reject the request.
        replication_factor = min(config.default_replication_factor, len(brokers))
    else:
        check_replication_factor(replication_factor, len(brokers))
    if partitions == DEFAULT:
        partitions = config.num_partitions
    check_partition_count(partitions)
    return place_replicas(brokers, partitions, replication_factor, racks=_racks(image))


def _racks(image: ClusterImage) -> dict[int, str | None]:
    return {number: broker.rack for number, broker in image.brokers.items()}


def _check_additions(image: ClusterImage, added: int, assignments: Sequence[Sequence[int]]) -> None:
    if len(assignments) != added:
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {added} additional partition(s), but only {len(assignments)} "
            "assignment(s) were specified.",
        )
    for replicas in assignments:
        check_replicas(replicas, tuple(image.brokers))


def _unused_topic_id(image: ClusterImage) -> bytes:
    while (topic_id := new_uuid()) in image.by_id:
        pass
    return topic_id
