"""Topics as the cluster knows them, and the rules for their names, partitions and replicas."""

import base64
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from millrace.errors import Error, KafkaError
from millrace.wire.schema import ZERO_UUID

MAX_NAME_LENGTH = 249
MAX_PARTITIONS_PER_REQUEST = 10_000
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
# Names the log of KRaft controllers, which a data directory that Kafka used before may hold.
CONTROLLER_TOPIC = "__cluster_metadata"

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
# Kafka gives this id a meaning of its own.
_METADATA_TOPIC_ID = bytes(15) + b"\x01"


@dataclass(slots=True)
class Topic:
    """One topic: its number of partitions and the configs set on it."""

    name: str
    topic_id: bytes
    partitions: int
    configs: dict[str, str] = field(default_factory=dict)

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


def new_uuid() -> bytes:
    """A random id that is neither reserved nor, written as text, looks like a command-line flag."""
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
    """Names with the same key collide: metrics' names cannot tell a dot from an underscore."""
    return name.replace(".", "_")


def check_partition_count(count: int) -> None:
    if count <= 0:
        raise KafkaError(
            Error.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
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
    """Check a new topic's partitions with the brokers that each is to live on."""
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
