"""The metadata of a broker that is alone, in files of its first data directory."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from millrace.cluster.configs import check_broker_settings, check_group_settings
from millrace.cluster.image import ALL_BROKERS, BrokerImage, ClusterImage, TopicImage
from millrace.cluster.store import PartitionStates, Subscriber
from millrace.cluster.topic_files import TopicFiles
from millrace.cluster.topic_rules import DEFAULT, check_topic_configs, grown_topic, new_topic
from millrace.config import BrokerConfig
from millrace.disk import Disk
from millrace.errors import Error, KafkaError
from millrace.security.acls import Acl, checked_acl
from millrace.storage.log_dir import LogDir
from millrace.wire.schema import ZERO_UUID

logger = logging.getLogger(__name__)

ENTITY_CONFIGS = "metadata/entity-configs.json"

RunInThread = Callable[[Callable[[], object]], "asyncio.Future[object]"]


def seed_entity_configs(directory: Path, disk: Disk, entity: str, configs: Mapping[str, str]) -> None:
    """Give an entity configs before the broker of a data directory first starts: its first user, say."""
    path = directory / ENTITY_CONFIGS
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {name: dict(settings) for name, settings in _read_configs(path).items()}
    content.setdefault(entity, {}).update(configs)
    disk.replace(path, json.dumps(content, indent=2).encode() + b"\n", mode=0o600)


class _GroupChanges:
    """New configs of groups that wait to be written."""

    __slots__ = ("by_group", "failure")

    def __init__(self) -> None:
        self.by_group: dict[str, Mapping[str, str]] = {}
        self.failure: KafkaError | None = None


class FileStore:
    """A `MetadataStore` of one broker. Owned by the broker loop; not thread-safe.

    A topic's file is written before its directories are made, and renamed before they are removed. Whatever a
    killed broker left half done is completed at the next start.
    """

    def __init__(
        self,
        config: BrokerConfig,
        log_dir: LogDir,
        cluster_id: str,
        *,
        run_in_thread: RunInThread,
        adopt: Callable[[], Sequence[TopicImage]],
    ) -> None:
        """`adopt` finds the topics of a directory that has logs but no metadata."""
        self._config = config
        self._disk = log_dir.disk
        self._run_in_thread = run_in_thread
        self._files = TopicFiles(log_dir.path / "metadata" / "topics", log_dir.disk, config.node_id)
        self._broker_configs_path = log_dir.path / "metadata" / "broker-configs.json"
        self._group_configs_path = log_dir.path / "metadata" / "group-configs.json"
        self._entity_configs_path = log_dir.path / ENTITY_CONFIGS
        self._acls_path = log_dir.path / "metadata" / "acls.json"
        self._subscribers: list[Subscriber] = []
        self._changing = asyncio.Lock()
        self._group_changes = _GroupChanges()
        self._image = ClusterImage(
            cluster_id,
            controller=config.node_id,
            broker_configs=_read_configs(self._broker_configs_path),
            group_configs=_read_configs(self._group_configs_path),
            entity_configs=_read_configs(self._entity_configs_path),
            acls=_read_acls(self._acls_path),
            deleting=MappingProxyType({topic.topic_id: topic.name for topic in self._files.deleting()}),
        )
        if self._files.created:
            for topic in adopt():
                self._files.save(topic)
        self._image = self._image.with_topics(self._files.live())
        config.set_dynamic(*self._layers(self._image))

    @property
    def image(self) -> ClusterImage:
        return self._image

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    async def _announce(self) -> None:
        """Let every subscriber act on the newest image."""
        for subscriber in self._subscribers:
            await subscriber(self._image)

    async def register(self, broker: BrokerImage) -> None:
        self._image = self._image.with_broker(broker)
        await self._announce()

    # Topics

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
        async with self._changing:
            topic = new_topic(
                self._image,
                self._config,
                name,
                partitions,
                replication_factor,
                configs=configs,
                assignments=assignments,
            )
            if validate_only:
                return replace(topic, topic_id=ZERO_UUID)
            await self._write(partial(self._files.save, topic))
            self._image = self._image.with_topics([topic])
        logger.info("created topic %s with %d partitions", name, topic.partitions)
        await self._announce()
        return topic

    async def delete_topic(self, topic: TopicImage) -> None:
        if not self._config.delete_topic_enable:
            raise KafkaError(Error.TOPIC_DELETION_DISABLED)
        async with self._changing:
            # Another request may have deleted it while this one waited.
            self._image.topic_by_id(topic.topic_id)
            await self._write(partial(self._files.mark_deleting, topic))
            self._image = self._image.without_topic(topic)
        logger.info("deleted topic %s", topic.name)
        await self._announce()
        await self.finish_deletion(topic.topic_id)

    async def finish_deletion(self, topic_id: bytes) -> None:
        """Forget a deleted topic, whose logs are out of the way."""
        await self._write(partial(self._files.remove_deleted, topic_id))
        self._image = self._image.after_deletion(topic_id)

    async def add_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        async with self._changing:
            before = self._image.topic(name).partitions
            topic = grown_topic(self._image, name, count, assignments)
            if validate_only:
                return
            await self._write(partial(self._files.save, topic))
            self._image = self._image.with_topics([topic])
        logger.info("raised topic %s from %d to %d partitions", name, before, count)
        await self._announce()

    async def alter_partitions(self, states: PartitionStates) -> None:
        async with self._changing:
            known = {name: changed for name, changed in states.items() if name in self._image.topics}
            image = self._image.with_partition_states(known)
            for name in known:
                # Each start detects offline replicas again, but an epoch must never go back.
                if _epochs(image.topics[name]) != _epochs(self._image.topics[name]):
                    await self._write(partial(self._files.save, image.topics[name]))
            self._image = image
        await self._announce()

    # Configs

    async def set_topic_configs(
        self, name: str, settings: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        async with self._changing:
            topic = self._image.topic(name)
            check_topic_configs(self._config, settings)
            if validate_only or settings == topic.configs:
                return
            changed = replace(topic, configs=MappingProxyType(dict(settings)))
            await self._write(partial(self._files.save, changed))
            self._image = self._image.with_topics([changed])
        await self._announce()

    async def set_broker_configs(
        self, broker: str, settings: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        async with self._changing:
            before = self._image.broker_configs.get(broker, {})
            check_broker_settings(before, settings, all_brokers=broker == ALL_BROKERS)
            image = self._image.with_broker_configs(broker, MappingProxyType(dict(settings)))
            self._check_topics_with(image)
            if validate_only:
                return
            await self._write_configs(self._broker_configs_path, image.broker_configs)
            self._image = image
            self._config.set_dynamic(*self._layers(image))
        await self._announce()

    async def set_group_configs(
        self, group: str, settings: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        check_group_settings(self._config, settings)
        if validate_only:
            return
        # Changes that come while the file is being written are written together.
        changes = self._group_changes
        changes.by_group[group] = MappingProxyType(dict(settings))
        async with self._changing:
            is_first = changes is self._group_changes
            if is_first:
                self._group_changes = _GroupChanges()
                await self._write_group_changes(changes)
        if changes.failure is not None:
            raise KafkaError(changes.failure.error, changes.failure.message)
        if is_first:
            await self._announce()

    async def _write_group_changes(self, changes: _GroupChanges) -> None:
        image = self._image.with_configs_of_groups(changes.by_group)
        if image.group_configs == self._image.group_configs:
            return
        try:
            await self._write_configs(self._group_configs_path, image.group_configs)
        except KafkaError as error:
            changes.failure = error
        else:
            self._image = image

    async def alter_entity_configs(self, entity: str, changes: Mapping[str, str | None]) -> None:
        async with self._changing:
            settings = {**self._image.entity_configs.get(entity, {}), **changes}
            kept = {name: text for name, text in settings.items() if text is not None}
            image = self._image.with_entity_configs(entity, MappingProxyType(kept))
            await self._write_configs(self._entity_configs_path, image.entity_configs, mode=0o600)
            self._image = image
        await self._announce()

    async def alter_acls(self, *, added: Collection[Acl] = (), removed: Collection[Acl] = ()) -> None:
        async with self._changing:
            acls = (self._image.acls | frozenset(added)) - frozenset(removed)
            if acls == self._image.acls:
                return
            text = json.dumps(sorted(acls), indent=2).encode() + b"\n"
            await self._write(lambda: self._disk.replace(self._acls_path, text))
            self._image = self._image.with_acls(acls)
        await self._announce()

    def _check_topics_with(self, image: ClusterImage) -> None:
        """Reject broker configs that contradict the configs of a topic."""
        self._config.set_dynamic(*self._layers(image))
        try:
            for topic in image.topics.values():
                check_topic_configs(self._config, topic.configs)
        finally:
            self._config.set_dynamic(*self._layers(self._image))

    def _layers(self, image: ClusterImage) -> tuple[dict[str, str], dict[str, str]]:
        configs = image.broker_configs
        return dict(configs.get(ALL_BROKERS, {})), dict(configs.get(str(self._config.node_id), {}))

    async def _write_configs(
        self, path: Path, configs: Mapping[str, Mapping[str, str]], *, mode: int = 0o644
    ) -> None:
        def write() -> None:
            content = {name: dict(settings) for name, settings in configs.items()}
            self._disk.replace(path, json.dumps(content, indent=2).encode() + b"\n", mode=mode)

        await self._write(write)

    async def _write(self, write: Callable[[], object]) -> None:
        """Write metadata off the loop. A failed write is reported to the client."""
        try:
            await self._run_in_thread(write)
        except OSError as error:
            logger.error("cannot write metadata: %s", error)
            raise KafkaError(
                Error.KAFKA_STORAGE_ERROR, f"the broker cannot write its metadata: {error}"
            ) from error


def _read_configs(path: Path) -> Mapping[str, Mapping[str, str]]:
    """Dynamic configs by broker or group."""
    try:
        content = json.loads(path.read_bytes())
        return MappingProxyType({str(name): dict(settings) for name, settings in content.items()})
    except FileNotFoundError:
        return MappingProxyType({})
    except (ValueError, TypeError, AttributeError) as error:
        raise OSError(
            f"the dynamic configs in {path} cannot be read ({error}); repair or remove the file"
        ) from error


def _read_acls(path: Path) -> frozenset[Acl]:
    try:
        return frozenset(checked_acl(*entry) for entry in json.loads(path.read_bytes()))
    except FileNotFoundError:
        return frozenset()
    except (ValueError, TypeError, KafkaError) as error:
        # Without them, everything that they deny would be allowed.
        raise OSError(f"the ACLs in {path} cannot be read ({error}); repair the file") from error


def _epochs(topic: TopicImage) -> list[int]:
    return [state.leader_epoch for state in topic.states]
