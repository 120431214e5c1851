"""The seam between the broker and the store of the cluster's metadata."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeAlias

from millrace.cluster.image import BrokerImage, ClusterImage, PartitionState, TopicImage
from millrace.cluster.topic_rules import DEFAULT
from millrace.config import BrokerConfig, GroupConfig
from millrace.config.group import group_config
from millrace.security.acls import Acl

Subscriber: TypeAlias = Callable[[ClusterImage], Awaitable[None]]
"""Acts on a new image. It may be called again before it has finished with the previous image."""

PartitionStates: TypeAlias = Mapping[str, Mapping[int, PartitionState]]
"""States of some partitions, by topic and index."""


class MetadataStore(Protocol):
    """Keeps the metadata and publishes an image of it after every change.

    A change returns when it is durable and the subscribers of this broker have acted on it: a topic that was
    created can be used at once. A change that is refused raises KafkaError and changes nothing. Owned by the
    broker loop; not thread-safe.
    """

    @property
    def image(self) -> ClusterImage:
        """The newest image."""

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call the subscriber with every new image."""

    async def register(self, broker: BrokerImage) -> None:
        """Announce this broker and its endpoints."""

    async def create_topic(
        self,
        name: str,
        partitions: int = DEFAULT,
        replication_factor: int = DEFAULT,
        *,
        configs: Mapping[str, str] | None = None,
        assignments: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> TopicImage:
        """Create a topic, or only check that it could be created."""

    async def delete_topic(self, topic: TopicImage) -> None:
        """Delete a topic. Its files are removed in the background."""

    async def finish_deletion(self, topic_id: bytes) -> None:
        """Forget a deleted topic: this broker has no files of it any more."""

    async def add_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Raise a topic's number of partitions to `count`."""

    async def set_topic_configs(
        self, name: str, settings: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        """Replace the configs of a topic."""

    async def set_broker_configs(
        self, broker: str, settings: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        """Replace the dynamic configs of a broker, or with ALL_BROKERS those of the whole cluster."""

    async def set_group_configs(
        self, group: str, settings: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        """Replace the configs of a group, whether or not the group exists."""

    async def alter_entity_configs(self, entity: str, changes: Mapping[str, str | None]) -> None:
        """Set credentials or quotas of a user, client or address; None unsets one."""

    async def alter_acls(self, *, added: Collection[Acl] = (), removed: Collection[Acl] = ()) -> None:
        """Add and remove ACLs; those that exist already, or do not, are no error."""

    async def alter_partitions(self, states: PartitionStates) -> None:
        """Replace the states of partitions: leaders, epochs, in-sync and offline replicas."""


class LiveGroupConfigs:
    """The resolved configs of groups, from the newest image of a store."""

    def __init__(self, store: MetadataStore, config: BrokerConfig) -> None:
        self._store = store
        self._config = config
        self._seen = ClusterImage()
        self._resolved: dict[str | None, GroupConfig] = {}

    def __call__(self, group: str) -> GroupConfig:
        image = self._store.image
        if image is not self._seen:
            self._notice(image)
        configured = group if group in image.group_configs else None
        resolved = self._resolved.get(configured)
        if resolved is None:
            overrides = {} if configured is None else image.group_configs[configured]
            resolved = self._resolved[configured] = group_config(self._config, overrides)
        return resolved

    def _notice(self, image: ClusterImage) -> None:
        before, self._seen = self._seen, image
        if (
            image.group_configs is not before.group_configs
            or image.broker_configs is not before.broker_configs
        ):
            self._resolved = {}


class LiveTopics:
    """The topics of a store's newest image, for code that keeps a reference."""

    __slots__ = ("_store",)

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    @property
    def topics(self) -> Mapping[str, TopicImage]:
        return self._store.image.topics

    @property
    def by_id(self) -> Mapping[bytes, TopicImage]:
        return self._store.image.by_id

    @property
    def version(self) -> int:
        """Rises whenever a topic is created, deleted or grows."""
        return self._store.image.version
