"""Apache Kafka and this broker get the same requests, and must send the same responses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from millrace.client import ConnectionLost
from millrace.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from millrace.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from millrace.wire.schema import ZERO_UUID, Request, Struct

from ...waiting import until
from ...wire_client import WireClient

SECONDS = 20.0
CREATE_TOPICS_VERSION = 7
LIST_OFFSETS_VERSION = 5

# Fields that differ between any two brokers, and texts of our own.
OF_ITS_OWN = frozenset(
    {"cluster_id", "host", "port", "log_dir", "total_bytes", "usable_bytes", "throttle_time_ms"}
    | {"error_message", "batch_index_error_message", "documentation", "client_host"}
    | {
        "member_id",
        "leader",
        "producer_id",
        "log_append_time_ms",
        "last_timestamp",
        "transaction_start_time_ms",
    }
)
# We flush once a second by default; Kafka 4 keeps the cluster's min.insync.replicas as a dynamic setting.
OTHER_DEFAULTS = frozenset({"flush.ms", "min.insync.replicas"})
CLOSED = "the connection was closed"


class Peer:
    """One of the two: its connection, its topic ids, and values that a test keeps for it."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._client = WireClient(bootstrap)
        self.topic_ids: dict[str, bytes] = {}
        self.notes: dict[str, Any] = {}
        self.versions = {
            api_key: range(lowest, highest + 1)
            for api_key, (lowest, highest) in self._client.connection.api_versions.items()
        }

    def ask(self, request: Request, version: int) -> Any:
        """The response, or CLOSED."""
        if not self._client.connection.is_open:
            self._client.close()
            self._client = WireClient(self._bootstrap)
        try:
            return self._client.send(request, version)
        except ConnectionLost:
            return CLOSED

    def close(self) -> None:
        self._client.close()


Asked: TypeAlias = Request | Callable[[Peer], Request]


class Twins:
    """Both brokers, kept in the same state by the same requests."""

    def __init__(self, kafka: Peer, ours: Peer) -> None:
        self.kafka = kafka
        self.ours = ours

    def __iter__(self) -> Iterator[Peer]:
        return iter((self.kafka, self.ours))

    def versions(self, request: type[Request], since: int = 0) -> range:
        """The versions of an API that both speak."""
        theirs, ours = self.kafka.versions[request.api_key], self.ours.versions[request.api_key]
        return range(
            max(theirs[0], ours[0], request.versions[0], since),
            min(theirs[-1], ours[-1], request.versions[-1]) + 1,
        )

    def agree(self, asked: Asked, version: int, note: str | None = None) -> Any:
        """Send a request to both, in the same version, and compare the responses; returns ours."""
        answers = []
        for peer in self:
            request = asked(peer) if callable(asked) else asked
            answer = peer.ask(request, version)
            answers.append(answer)
            if note is not None:
                peer.notes[note] = answer
        theirs, ours = map(comparable, answers)
        assert ours == theirs, f"{request} in version {version}\nKafka: {theirs}\n   we: {ours}"
        return answers[-1]

    def agree_soon(self, asked: Asked, version: int) -> None:
        """The same, for changes that Kafka's broker gets from its controller a moment later."""

        def agreed() -> bool:
            try:
                self.agree(asked, version)
            except AssertionError:
                return False
            return True

        until(agreed, SECONDS)

    def agree_in_all(self, asked: Request, since: int = 0) -> None:
        """Send a request to both in every version that they speak."""
        for version in self.versions(type(asked), since):
            self.agree(asked, version)

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic on both; Apache Kafka's needs a moment."""
        settings = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
        topic = CreatableTopic(name, partitions, 1, configs=settings)
        for peer in self:
            created = peer.ask(CreateTopicsRequest(topics=[topic]), CREATE_TOPICS_VERSION).topics[0]
            assert created.error_code == 0, created
            peer.topic_ids[name] = created.topic_id
            _wait_for_leaders(peer, name, partitions)


def _wait_for_leaders(peer: Peer, topic: str, partitions: int) -> None:
    asked = ListOffsetsTopic(
        topic, [ListOffsetsPartition(index, timestamp=-1) for index in range(partitions)]
    )

    def led() -> bool:
        (told,) = peer.ask(ListOffsetsRequest(-1, 0, [asked]), LIST_OFFSETS_VERSION).topics
        return all(partition.error_code == 0 for partition in told.partitions)

    until(led, SECONDS)


def comparable(value: object) -> Any:
    """A response without broker-specific fields. Lists are compared without order: Kafka's come from maps."""
    match value:
        case Struct():
            told = {
                name: comparable(getattr(value, name))
                for name in type(value).wire_fields
                if name not in OF_ITS_OWN
            }
            if told.get("error_code"):
                # Kafka sets it in some errors and not in others.
                told.pop("log_start_offset", None)
            return told
        case list() if value and isinstance(value[0], Struct):
            kept = (item for item in value if getattr(item, "name", None) not in OTHER_DEFAULTS)
            return sorted(map(comparable, kept), key=repr)
        case list():
            # None and an empty list mean the same, and Kafka uses both.
            return sorted(value, key=repr) or None
        case bytes() if len(value) == len(ZERO_UUID):
            return "an id" if value != ZERO_UUID else None
        case memoryview():
            return bytes(value)
        case _:
            return value
