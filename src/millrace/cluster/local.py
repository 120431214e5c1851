"""The metadata of a broker that is alone: topics and configs, kept in files under its data directory."""

import json
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from millrace.cluster import identity
from millrace.cluster.configs import check_broker_settings
from millrace.cluster.metadata import (
    CONTROLLER_TOPIC,
    INTERNAL_TOPICS,
    Topic,
    check_assignments,
    check_partition_count,
    check_replicas,
    check_replication_factor,
    check_topic_name,
    collision_key,
    new_uuid,
)
from millrace.cluster.topic_files import TopicFiles
from millrace.config import BrokerConfig, ConfigError, LogConfig
from millrace.errors import Error, KafkaError
from millrace.replication.partitions import Partitions
from millrace.storage.log_dir import LogDir
from millrace.wire.schema import ZERO_UUID

logger = logging.getLogger(__name__)

ALL_BROKERS = ""
_DEFAULT = -1


class LocalCluster:
    """Owned by the broker loop; not thread-safe.

    A topic's file is written before its directories are made, and set aside before they are removed: whatever
    a killed broker left half done is completed at the next start. Changes here are rare and small, so their
    fsync happens on the loop.
    """

    def __init__(self, config: BrokerConfig, log_dir: LogDir, partitions: Partitions) -> None:
        self.config = config
        self.partitions = partitions
        self.cluster_id = identity.claim(partitions.log_dirs, config)
        self.node_id = config.node_id
        self.topics: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self.version = 0
        """Rises whenever a topic comes, goes or grows, so that others need not compare."""
        self.on_deleted: list[Callable[[str], None]] = []
        """Told the name of each topic that is deleted."""
        self._by_collision_key: dict[str, str] = {}
        self._disk = log_dir.disk
        self._files = TopicFiles(log_dir.path / "metadata" / "topics", log_dir.disk)
        self._broker_configs_path = log_dir.path / "metadata" / "broker-configs.json"
        self._broker_configs = self._read_broker_configs()
        config.set_dynamic(*self._layers(self._broker_configs))
        self._load()

    @property
    def brokers(self) -> tuple[int, ...]:
        return (self.node_id,)

    # Starting

    def _load(self) -> None:
        for topic in self._files.deleting():
            self._finish_deletion(topic)
        if self._files.created:
            self._adopt_topics()
        for topic in self._files.live():
            self._remember(topic)
        self._set_strays_aside()
        for topic in self.topics.values():
            self._open_partitions(topic, range(topic.partitions))

    def _finish_deletion(self, topic: Topic) -> None:
        config = self.config.log_config({})
        for log_dir in self.partitions.log_dirs:
            for name, index in list(log_dir.partitions()):
                if name == topic.name and log_dir.topic_id(name, index) in (None, topic.topic_id):
                    self.partitions.create(name, topic.topic_id, index, config)
        self.partitions.delete(topic.name)
        self._files.remove_deleted(topic)
        logger.info("finished deleting topic %s, which was interrupted", topic.name)

    def _adopt_topics(self) -> None:
        """Take over the partitions of a directory that Kafka wrote, or whose metadata was lost."""
        found: dict[str, Topic] = {}
        for log_dir in self.partitions.log_dirs:
            for name, index in log_dir.partitions():
                if name == CONTROLLER_TOPIC:
                    continue
                topic_id = log_dir.topic_id(name, index) or new_uuid()
                # What coordinators keep is lost if it is deleted by age.
                configs = {"cleanup.policy": "compact"} if name in INTERNAL_TOPICS else {}
                topic = found.setdefault(name, Topic(name, topic_id, partitions=0, configs=configs))
                topic.partitions = max(topic.partitions, index + 1)
        for topic in found.values():
            self._files.save(topic)
            logger.warning(
                "took over topic %s with %d partitions from its directories; its configs are the defaults",
                topic.name,
                topic.partitions,
            )

    def _set_strays_aside(self) -> None:
        """Rename, as Kafka does, partition directories that belong to no topic; nothing in them is lost."""
        for log_dir in self.partitions.log_dirs:
            for name, index in list(log_dir.partitions()):
                if name == CONTROLLER_TOPIC or self._owns(log_dir, name, index):
                    continue
                path = log_dir.partition_path(name, index)
                stray = path.with_name(f"{path.name[:200]}.{uuid.uuid4().hex}-stray")
                log_dir.disk.rename(path, stray)
                self.partitions.forget(name, index)
                logger.warning("%s belongs to no topic; it is kept as %s", path, stray.name)

    def _owns(self, log_dir: LogDir, name: str, index: int) -> bool:
        topic = self.topics.get(name)
        if topic is None or index >= topic.partitions:
            return False
        return log_dir.topic_id(name, index) in (None, topic.topic_id)

    def _remember(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self.by_id[topic.topic_id] = topic
        self._by_collision_key[collision_key(topic.name)] = topic.name
        self.version += 1

    def _open_partitions(self, topic: Topic, indexes: range) -> None:
        config = self.log_config(topic.name)
        for index in indexes:
            self.partitions.create(topic.name, topic.topic_id, index, config)

    # Topics

    def topic(self, name: str) -> Topic:
        try:
            return self.topics[name]
        except KeyError:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION) from None

    def topic_by_id(self, topic_id: bytes) -> Topic:
        try:
            return self.by_id[topic_id]
        except KeyError:
            raise KafkaError(Error.UNKNOWN_TOPIC_ID) from None

    def log_config(self, name: str) -> LogConfig:
        """The resolved configuration of a topic's logs."""
        try:
            return self.config.log_config(self.topics[name].configs)
        except ConfigError as error:
            raise ConfigError(f"topic {name}: {error}") from error

    def create_topic(
        self,
        name: str,
        partitions: int = _DEFAULT,
        replication_factor: int = _DEFAULT,
        *,
        configs: Mapping[str, str] | None = None,
        assignments: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Create a topic, or only check that it could be created."""
        self._check_new_name(name)
        count = self._check_layout(partitions, replication_factor, assignments)
        settings = dict(configs or {})
        self._check_topic_configs(settings)
        topic = Topic(name, ZERO_UUID if validate_only else self._new_topic_id(), count, settings)
        if validate_only:
            return topic
        with _storage_errors():
            self._files.save(topic)
        self._remember(topic)
        self._open_partitions(topic, range(count))
        logger.info("created topic %s with %d partitions", name, count)
        return topic

    def auto_create_topic(self, name: str) -> Topic:
        """Create a topic because a client asked for it."""
        if not self.config.auto_create_topics_enable or name in INTERNAL_TOPICS or name == CONTROLLER_TOPIC:
            check_topic_name(name)
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
        return self.create_topic(name)

    def delete_topic(self, topic: Topic) -> None:
        """Delete a topic; its files go in the background."""
        if not self.config.delete_topic_enable:
            raise KafkaError(Error.TOPIC_DELETION_DISABLED)
        with _storage_errors():
            self._files.mark_deleting(topic)
            del self.topics[topic.name]
            del self.by_id[topic.topic_id]
            self._by_collision_key.pop(collision_key(topic.name), None)
            self.version += 1
            self.partitions.delete(topic.name)
            self._files.remove_deleted(topic)
        logger.info("deleted topic %s", topic.name)
        for tell in self.on_deleted:
            tell(topic.name)

    def add_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Raise a topic's number of partitions to `count`."""
        topic = self.topic(name)
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
        if assignments is not None:
            if len(assignments) != added:
                raise KafkaError(
                    Error.INVALID_REPLICA_ASSIGNMENT,
                    f"Attempted to add {added} additional partition(s), but only {len(assignments)} "
                    "assignment(s) were specified.",
                )
            for replicas in assignments:
                check_replicas(replicas, self.brokers)
        if validate_only:
            return
        before = topic.partitions
        with _storage_errors():
            self._files.save(Topic(name, topic.topic_id, count, topic.configs))
        topic.partitions = count
        self.version += 1
        self._open_partitions(topic, range(before, count))
        logger.info("raised topic %s from %d to %d partitions", name, before, count)

    def _check_new_name(self, name: str) -> None:
        check_topic_name(name)
        if name == CONTROLLER_TOPIC:
            raise KafkaError(Error.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
        if name in self.topics:
            raise KafkaError(Error.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if other := self._by_collision_key.get(collision_key(name)):
            raise KafkaError(
                Error.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
            )

    def _check_layout(
        self, partitions: int, replication_factor: int, assignments: Mapping[int, Sequence[int]] | None
    ) -> int:
        """The number of partitions that a new topic asks for."""
        if assignments:
            if replication_factor != _DEFAULT or partitions != _DEFAULT:
                unset = "replication factor" if replication_factor != _DEFAULT else "numPartitions"
                raise KafkaError(
                    Error.INVALID_REQUEST,
                    f"A manual partition assignment was specified, but {unset} was not set to -1.",
                )
            check_assignments(assignments, self.brokers)
            return len(assignments)
        # A default replication factor that was meant for a larger cluster is no reason to refuse.
        if replication_factor != _DEFAULT:
            check_replication_factor(replication_factor, len(self.brokers))
        if partitions == _DEFAULT:
            return self.config.num_partitions
        check_partition_count(partitions)
        return partitions

    def _new_topic_id(self) -> bytes:
        while (topic_id := new_uuid()) in self.by_id:
            pass
        return topic_id

    def _check_topic_configs(self, settings: dict[str, str]) -> LogConfig:
        try:
            return self.config.log_config(settings)
        except ConfigError as error:
            raise KafkaError(Error.INVALID_CONFIG, str(error)) from error

    # Configs

    def set_topic_configs(
        self, topic: Topic, settings: dict[str, str], *, validate_only: bool = False
    ) -> None:
        """Replace what is set on a topic; its logs work by it at once."""
        log_config = self._check_topic_configs(settings)
        if validate_only or settings == topic.configs:
            return
        with _storage_errors():
            self._files.save(Topic(topic.name, topic.topic_id, topic.partitions, settings))
        topic.configs = settings
        self.partitions.reconfigure(topic.name, log_config)

    def broker_configs(self, broker: str) -> dict[str, str]:
        """What is set dynamically on one broker, or under ALL_BROKERS on all of them."""
        return self._broker_configs.get(broker, {})

    def set_broker_configs(
        self, broker: str, settings: dict[str, str], *, validate_only: bool = False
    ) -> None:
        """Replace what is set dynamically on a broker, or on all; it takes effect at once."""
        check_broker_settings(self.broker_configs(broker), settings, all_brokers=broker == ALL_BROKERS)
        before = self._broker_configs
        after = {**before, broker: settings}
        self.config.set_dynamic(*self._layers(after))
        try:
            log_configs = {
                name: self._check_topic_configs(topic.configs) for name, topic in self.topics.items()
            }
            if not validate_only:
                with _storage_errors():
                    self._disk.replace(
                        self._broker_configs_path, json.dumps(after, indent=2).encode() + b"\n"
                    )
        except KafkaError:
            self.config.set_dynamic(*self._layers(before))
            raise
        if validate_only:
            self.config.set_dynamic(*self._layers(before))
            return
        self._broker_configs = after
        for name, log_config in log_configs.items():
            self.partitions.reconfigure(name, log_config)

    def _layers(self, broker_configs: Mapping[str, dict[str, str]]) -> tuple[dict[str, str], dict[str, str]]:
        return broker_configs.get(ALL_BROKERS, {}), broker_configs.get(str(self.node_id), {})

    def _read_broker_configs(self) -> dict[str, dict[str, str]]:
        try:
            content = json.loads(self._broker_configs_path.read_bytes())
            return {str(broker): dict(settings) for broker, settings in content.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, AttributeError) as error:
            raise OSError(
                f"the dynamic broker configs in {self._broker_configs_path} cannot be read ({error}); "
                "mend or remove the file"
            ) from error


@contextmanager
def _storage_errors() -> Iterator[None]:
    """Tell a client that asked for a change why the disk did not take it."""
    try:
        yield
    except OSError as error:
        logger.error("cannot write metadata: %s", error)
        raise KafkaError(
            Error.KAFKA_STORAGE_ERROR, f"the broker cannot write its metadata: {error}"
        ) from error
