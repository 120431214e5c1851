"""The broker's configuration: the options it honours, read from a Kafka properties file."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from .listeners import Listener, parse_endpoint, parse_protocol_map, resolve_listeners
from .options import (
    DAY_MS,
    HOUR_MS,
    INT_MAX,
    LONG_MAX,
    MINUTE_MS,
    SECOND_MS,
    ConfigError,
    Kind,
    Option,
    Scope,
    Value,
    boolean,
    double,
    integer,
    long,
    options_of,
    string,
    strings,
)
from .properties import parse_properties
from .security import SASL_JAAS_CONFIG, SASL_OPTIONS, TLS_OPTIONS, SaslConfig, TlsConfig
from .topic import TOPIC_OPTIONS, LogConfig, check_log_config, parse_topic_configs

logger = logging.getLogger(__name__)

_DYNAMIC = Scope.CLUSTER_WIDE


@dataclass(slots=True, repr=False, eq=False)
class BrokerConfig:
    """The broker's options; owned by the broker loop, which updates the dynamic ones in place."""

    allow_everyone_if_no_acl_found: bool = boolean(
        False, "Whether operations on resources without ACLs are allowed to everyone."
    )
    authorizer_class_name: str = string(
        "", "An authorizer of Kafka, such as org.apache.kafka.metadata.authorizer.StandardAuthorizer."
    )
    auto_create_topics_enable: bool = boolean(True, "Create a topic when a client first requests it.")
    broker_rack: str | None = string(None, "Rack of this broker, reported to clients.")
    connection_failed_authentication_delay_ms: int = integer(
        100, "How long a client waits for the response to a failed authentication.", at_least=0
    )
    connections_max_idle_ms: int = long(10 * MINUTE_MS, "Close a connection that was idle this long.")
    default_replication_factor: int = integer(
        1, "Replicas of a topic that is created without a replication factor.", at_least=1
    )
    delete_topic_enable: bool = boolean(True, "Whether topics can be deleted.")
    fetch_max_bytes: int = integer(
        55 << 20, "Most bytes that one fetch response carries, whatever the client requests.", at_least=1024
    )
    group_consumer_assignment_interval_ms: int = integer(
        SECOND_MS,
        "How long a group of the consumer protocol keeps an assignment before it makes another.",
        at_least=0,
        scope=_DYNAMIC,
    )
    group_consumer_assignors: tuple[str, ...] = strings(
        ("uniform", "range"),
        "Assignors that members of the consumer protocol may choose; the first is the default.",
        choices=("uniform", "range"),
    )
    group_consumer_heartbeat_interval_ms: int = integer(
        5 * SECOND_MS, "Heartbeat interval that members of the consumer protocol are given.", at_least=1
    )
    group_consumer_max_assignment_interval_ms: int = integer(
        15 * SECOND_MS, "Largest consumer.assignment.interval.ms that a group may set.", at_least=0
    )
    group_consumer_max_heartbeat_interval_ms: int = integer(
        15 * SECOND_MS, "Largest consumer.heartbeat.interval.ms that a group may set.", at_least=1
    )
    group_consumer_max_session_timeout_ms: int = integer(
        60 * SECOND_MS, "Largest consumer.session.timeout.ms that a group may set.", at_least=1
    )
    group_consumer_max_size: int = integer(
        INT_MAX, "Most members of one group of the consumer protocol.", at_least=1
    )
    group_consumer_migration_policy: str = string(
        "bidirectional",
        "Direction in which non-empty groups may convert between the classic and the consumer protocol.",
        choices=("disabled", "downgrade", "upgrade", "bidirectional"),
    )
    group_consumer_min_assignment_interval_ms: int = integer(
        0, "Smallest consumer.assignment.interval.ms that a group may set.", at_least=0
    )
    group_consumer_min_heartbeat_interval_ms: int = integer(
        5 * SECOND_MS, "Smallest consumer.heartbeat.interval.ms that a group may set.", at_least=1
    )
    group_consumer_min_session_timeout_ms: int = integer(
        45 * SECOND_MS, "Smallest consumer.session.timeout.ms that a group may set.", at_least=1
    )
    group_consumer_session_timeout_ms: int = integer(
        45 * SECOND_MS, "How long a member of the consumer protocol may be silent.", at_least=1
    )
    group_initial_rebalance_delay_ms: int = integer(
        3 * SECOND_MS, "How long a new group waits for more members before it first balances.", at_least=0
    )
    group_max_session_timeout_ms: int = integer(
        30 * MINUTE_MS, "Longest session timeout that a member may request."
    )
    group_max_size: int = integer(INT_MAX, "Most members of one group.", at_least=1)
    group_min_session_timeout_ms: int = integer(
        6 * SECOND_MS, "Shortest session timeout that a member may request."
    )
    log_cleaner_backoff_ms: int = long(
        15 * SECOND_MS, "How long the cleaner pauses when no log is due.", at_least=0, scope=_DYNAMIC
    )
    log_cleaner_dedupe_buffer_size: int = long(
        128 << 20, "Memory that one compaction may use for its map of keys.", at_least=1 << 20, scope=_DYNAMIC
    )
    log_cleaner_enable: bool = boolean(True, "Whether compacted topics are compacted.")
    log_cleaner_io_buffer_load_factor: float = double(
        0.9,
        "How full the map of keys may become before a compaction reads no further segments.",
        scope=_DYNAMIC,
    )
    log_cleaner_io_max_bytes_per_second: float = double(
        1.7976931348623157e308, "Throttle on the bytes that compaction reads and writes.", scope=_DYNAMIC
    )
    log_cleaner_threads: int = integer(
        1, "Logs that are compacted at the same time, each in a process.", at_least=0, scope=_DYNAMIC
    )
    log_flush_offset_checkpoint_interval_ms: int = integer(
        MINUTE_MS, "How often recovery points and log start offsets are saved.", at_least=0
    )
    log_initial_task_delay_ms: int = long(
        30 * SECOND_MS, "How long after the start retention and compaction begin.", at_least=0
    )
    log_retention_check_interval_ms: int = long(
        5 * MINUTE_MS, "How often logs are checked for segments to delete.", at_least=1
    )
    max_connections: int = integer(INT_MAX, "Most connections at a time.", at_least=0)
    max_connections_per_ip: int = integer(INT_MAX, "Most connections of one address.", at_least=0)
    max_connections_per_ip_overrides: tuple[str, ...] = strings(
        (), "Other limits of some addresses, as 10.0.0.1:100,10.0.0.2:5."
    )
    max_incremental_fetch_session_cache_slots: int = integer(
        1000, "Fetch sessions that are kept at a time.", at_least=0
    )
    max_request_partition_size_limit: int = integer(
        2000, "Most partitions that one DescribeTopicPartitions response carries.", at_least=1
    )
    millrace_busy_poll_us: int = integer(
        200,
        "While requests follow closely, look for the next one this long before sleeping; 0 always sleeps.",
        at_least=0,
        at_most=10_000,
    )
    millrace_fetch_pacing_enable: bool = boolean(
        True,
        "Respond to consumers on librdkafka at the pace of their applications, since a full queue stops them"
        " for a second.",
    )
    millrace_queued_max_response_bytes: int = long(
        128 << 20,
        "Bytes of responses that may wait in memory for clients to read them; beyond this, connections of the"
        " slowest readers are closed. -1 is no limit.",
    )
    num_partitions: int = integer(
        1, "Partitions of a topic that is created without a partition count.", at_least=1
    )
    offset_metadata_max_bytes: int = integer(4096, "Longest metadata of a committed offset.")
    offsets_retention_check_interval_ms: int = long(
        10 * MINUTE_MS, "How often unused offsets are searched for and removed.", at_least=1
    )
    offsets_retention_minutes: int = integer(
        7 * 24 * 60, "How long the offsets of a group without members are kept.", at_least=1
    )
    offsets_topic_num_partitions: int = integer(
        50, "Partitions of the topic that keeps groups and offsets, when it is created.", at_least=1
    )
    offsets_topic_segment_bytes: int = integer(
        100 << 20, "Segment size of the topic that keeps groups and offsets.", at_least=1
    )
    producer_id_expiration_ms: int = integer(
        DAY_MS, "How long an idle idempotent producer is remembered.", at_least=1
    )
    queued_max_request_bytes: int = long(
        256 << 20,
        "Bytes of requests held in memory before reading pauses; -1 is no limit, Kafka's default.",
    )
    quota_window_num: int = integer(
        11, "Seconds over which the rates of clients with quotas are measured.", at_least=2
    )
    sasl_mechanism_inter_broker_protocol: str = string(
        "SCRAM-SHA-512", "SASL mechanism of brokers that connect to each other."
    )
    socket_request_max_bytes: int = integer(100 << 20, "Largest request that is accepted.", at_least=1)
    super_users: str = string("", "Principals that may do everything, as User:ada;User:bob.")
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(
        10 * SECOND_MS, "How often transactions past their timeout are searched for.", at_least=1
    )
    transaction_max_timeout_ms: int = integer(
        15 * MINUTE_MS, "Longest transaction timeout that a producer may request.", at_least=1
    )
    transaction_partition_verification_enable: bool = boolean(
        True,
        "Whether a transaction's first append to a partition must be announced to its coordinator.",
        scope=_DYNAMIC,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        HOUR_MS, "How often unused transactional ids are searched for.", at_least=1
    )
    transaction_state_log_num_partitions: int = integer(
        50, "Partitions of the topic that keeps transactions, when it is created.", at_least=1
    )
    transaction_state_log_segment_bytes: int = integer(
        100 << 20, "Segment size of the topic that keeps transactions.", at_least=1
    )
    transactional_id_expiration_ms: int = integer(
        7 * DAY_MS, "How long a transactional id without transactions is kept.", at_least=1
    )

    auto_leader_rebalance_enable: bool = boolean(
        True, "Whether the controller gives leadership back to the first replicas."
    )
    leader_imbalance_check_interval_seconds: int = long(
        300, "Time between two looks at whether the first replicas lead.", at_least=1
    )
    leader_imbalance_per_broker_percentage: int = integer(
        10, "Share of a broker's partitions that others may lead before that is changed.", at_least=0
    )
    controlled_shutdown_enable: bool = boolean(
        True, "Whether a broker hands its leaders over before it stops."
    )
    inter_broker_listener_name: str | None = string(
        None, "Listener that brokers use among themselves; the first one if it is not set."
    )
    offsets_topic_replication_factor: int = integer(
        3, "Replicas of the topic that keeps offsets, or as many as there are brokers.", at_least=1
    )
    replica_fetch_max_bytes: int = integer(
        1 << 20, "Most bytes of one partition in a follower's fetch.", at_least=0
    )
    replica_fetch_min_bytes: int = integer(1, "Fewest bytes that a follower's fetch waits for.")
    replica_fetch_response_max_bytes: int = integer(10 << 20, "Most bytes of a follower's fetch.", at_least=0)
    replica_fetch_wait_max_ms: int = integer(500, "How long a follower's fetch waits for records.")
    replica_lag_time_max_ms: int = long(
        30 * SECOND_MS, "How long a replica may lag before it is not in sync any more."
    )
    transaction_state_log_replication_factor: int = integer(
        3, "Replicas of the topic that keeps transactions, or as many as there are brokers.", at_least=1
    )
    zookeeper_connect: str | None = string(
        None, "The ensemble of the cluster that the broker joins: host:port,... and a path if it has one."
    )
    zookeeper_connection_timeout_ms: int = integer(
        18 * SECOND_MS, "How long a broker waits for the ensemble when it starts."
    )
    zookeeper_session_timeout_ms: int = integer(
        18 * SECOND_MS, "How long the ensemble waits for a silent broker before it counts as dead."
    )

    # Resolved from several options together.
    node_id: int = 1
    log_dirs: tuple[str, ...] = ("/tmp/kafka-logs",)
    listeners: tuple[Listener, ...] = (Listener("PLAINTEXT", "", 9092, "PLAINTEXT", "localhost", 9092),)

    # The texts behind the values, weakest last; a missing name means the option's default.
    dynamic: dict[str, str] = field(default_factory=dict)
    dynamic_defaults: dict[str, str] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)

    @property
    def broker_id(self) -> int:
        """The older name of node.id."""
        return self.node_id

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener that brokers use among themselves."""
        return self.inter_broker_listener_name or self.listeners[0].name

    def replication_factor_of(self, internal_topic: str) -> int:
        """The replicas that an internal topic should have."""
        if internal_topic == "__transaction_state":
            return self.transaction_state_log_replication_factor
        return self.offsets_topic_replication_factor

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Read a Kafka properties file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path} is not a text file in UTF-8") from error
        return cls.from_properties(parse_properties(text))

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Build the configuration; a wrong value is a ConfigError, an unknown name a warning."""
        static = known_properties(properties)
        config = cls(static=static)
        config._resolve(FIELD_OPTIONS)
        config.node_id = _resolve_node_id(static)
        config.log_dirs = _resolve_log_dirs(static)
        config.listeners = _resolve_listeners(static)
        config.log_config({})
        config.connection_limits()
        return config

    def set_dynamic(self, defaults: dict[str, str], this_broker: dict[str, str]) -> None:
        """Replace the dynamic layers: those of all brokers, and those of this one."""
        self.dynamic_defaults = defaults
        self.dynamic = this_broker
        self._resolve([option for option in FIELD_OPTIONS if option.scope is not Scope.READ_ONLY])

    def _resolve(self, options: list[Option]) -> None:
        for option in options:
            setattr(self, option.attribute, self.value(option))

    def value(self, option: Option) -> Value:
        """The current value of a broker option."""
        for layer in (self.dynamic, self.dynamic_defaults, self.static):
            if option.name in layer:
                return option.parse(layer[option.name])
        return option.default

    def connection_limits(self) -> dict[str, int]:
        """The addresses that may have another number of connections than all others."""
        limits = {}
        for entry in filter(None, self.max_connections_per_ip_overrides):
            host, _, count = entry.rpartition(":")
            if not host or not count.isdecimal():
                raise ConfigError(f"max.connections.per.ip.overrides takes host:number, got {entry!r}")
            limits[host.strip("[]")] = int(count)
        return limits

    def tls(self, listener: str) -> TlsConfig:
        """The TLS options of a listener: its own over those of all listeners."""
        return TlsConfig(**self._listener_values(listener, TLS_OPTIONS))

    def sasl(self, listener: str) -> SaslConfig:
        """The SASL options of a listener: its own over those of all listeners."""
        return SaslConfig(**self._listener_values(listener, SASL_OPTIONS))

    def _listener_values(self, listener: str, options: Iterable[Option]) -> dict[str, Any]:
        """By field; each option parses to the type of its field."""
        return {option.attribute: self._listener_value(listener, option) for option in options}

    def jaas_config(self, listener: str, mechanism: str) -> str | None:
        """The JAAS text of a mechanism on a listener."""
        own = replace(SASL_JAAS_CONFIG, name=f"{mechanism.lower()}.{SASL_JAAS_CONFIG.name}")
        text = self._listener_value(listener, own)
        return None if text is None else str(text)

    def _listener_value(self, listener: str, option: Option) -> Value:
        for name in (f"listener.name.{listener.lower()}.{option.name}", option.name):
            for layer in (self.dynamic, self.dynamic_defaults, self.static):
                if name in layer:
                    return option.parse(layer[name])
        return option.default

    def log_config(self, overrides: dict[str, str]) -> LogConfig:
        """A topic's configuration: its own settings over the broker's over the defaults."""
        values = {
            option.attribute: value
            for option in TOPIC_OPTIONS.values()
            if (value := self.topic_default(option)) != option.default
        }
        values |= parse_topic_configs(overrides)
        config = LogConfig(**values)  # type: ignore[arg-type]  # each option parses to its own field's type
        check_log_config(config)
        return config

    def topic_default(self, option: Option) -> Value:
        """The value that a topic has if it does not set this option itself."""
        for layer in (self.dynamic, self.dynamic_defaults, self.static):
            for synonym in option.synonyms:
                if synonym in layer:
                    return _in_topic_unit(BROKER_OPTIONS[synonym], layer[synonym])
        return option.default


def _in_topic_unit(option: Option, text: str) -> Value:
    value = option.parse(text)
    if option.unit_ms != 1 and isinstance(value, int):
        return value * option.unit_ms if value >= 0 else -1
    return value


def _log_defaults() -> list[Option]:
    """The broker option behind each topic option that has one."""
    return [
        Option(
            name=option.synonyms[0],
            kind=option.kind,
            # If weaker synonyms exist in other units, the strongest has no default: they would never count.
            default=option.default if len(option.synonyms) == 1 else None,
            doc=f"Default of {option.name} for topics. {option.doc}",
            at_least=option.at_least,
            at_most=option.at_most,
            choices=option.choices,
            also=option.also,
            scope=Scope.CLUSTER_WIDE,
        )
        for option in TOPIC_OPTIONS.values()
        if option.synonyms
    ]


_WEAKER_LOG_DEFAULTS = [
    Option(
        "log.flush.scheduler.interval.ms",
        Kind.LONG,
        LONG_MAX,
        "Default of flush.ms for topics when log.flush.interval.ms is not set.",
    ),
    Option(
        "log.retention.hours",
        Kind.INT,
        168,
        "log.retention.ms in hours; counts when neither that nor log.retention.minutes is set.",
        unit_ms=HOUR_MS,
    ),
    Option(
        "log.retention.minutes",
        Kind.INT,
        None,
        "log.retention.ms in minutes; counts when that is not set.",
        unit_ms=MINUTE_MS,
    ),
    Option(
        "log.roll.hours",
        Kind.INT,
        168,
        "log.roll.ms in hours; counts when that is not set.",
        at_least=1,
        unit_ms=HOUR_MS,
    ),
    Option(
        "log.roll.jitter.hours",
        Kind.INT,
        0,
        "log.roll.jitter.ms in hours; counts when that is not set.",
        at_least=0,
        unit_ms=HOUR_MS,
    ),
]

_COMPOUND_OPTIONS = [
    Option(
        "advertised.listeners",
        Kind.LIST,
        None,
        "Addresses that clients are given to connect to; by default those of listeners.",
    ),
    Option("broker.id", Kind.INT, -1, "Older name of node.id."),
    Option(
        "controller.listener.names",
        Kind.LIST,
        None,
        "Listeners of KRaft controllers; they are not opened, because there is no controller.",
    ),
    Option(
        "listener.security.protocol.map",
        Kind.STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Security protocol of each listener: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    ),
    Option(
        "listeners",
        Kind.LIST,
        ("PLAINTEXT://:9092",),
        "Addresses to listen on, as NAME://host:port; an empty host is every interface.",
    ),
    Option("log.dir", Kind.LIST, ("/tmp/kafka-logs",), "Data directories, when log.dirs is not set."),
    Option("log.dirs", Kind.LIST, None, "Data directories; partitions are spread over them."),
    Option("node.id", Kind.INT, None, "This broker's number; 1 if none is given.", at_least=0),
    Option(
        "process.roles",
        Kind.LIST,
        None,
        "Roles of a KRaft node; any list that includes broker is accepted.",
        choices=("broker", "controller"),
    ),
]

FIELD_OPTIONS: list[Option] = list(options_of(BrokerConfig))

BROKER_OPTIONS: dict[str, Option] = {
    option.name: option
    for option in sorted(
        (
            *FIELD_OPTIONS,
            *_log_defaults(),
            *_WEAKER_LOG_DEFAULTS,
            *_COMPOUND_OPTIONS,
            *TLS_OPTIONS,
            *SASL_OPTIONS,
            SASL_JAAS_CONFIG,
        ),
        key=lambda option: option.name,
    )
}
"""Every broker option that has an effect, by name."""


def known_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Drop and report names that have no effect here, and translate those of old Kafka versions."""
    from .known import find_broker_option, report_unknown

    known = {}
    for name, text in properties.items():
        if name in _OLD_LISTENER_OPTIONS:
            continue
        option = BROKER_OPTIONS.get(name) or find_broker_option(name)
        if option is None:
            report_unknown(name)
            continue
        known[name] = text
    return known | _translate_old_listeners(properties)


_OLD_LISTENER_OPTIONS = ("host.name", "port", "advertised.host.name", "advertised.port")


def _translate_old_listeners(properties: Mapping[str, str]) -> dict[str, str]:
    """Write `port`, `host.name` and their advertised forms, as Kafka 0.8 had them, as listeners."""
    translated = {}
    host, port = properties.get("host.name", ""), properties.get("port", "9092")
    if "listeners" not in properties and ("host.name" in properties or "port" in properties):
        translated["listeners"] = f"PLAINTEXT://{host}:{port}"
    if "advertised.listeners" not in properties and (
        "advertised.host.name" in properties or "advertised.port" in properties
    ):
        advertised_host = properties.get("advertised.host.name", host)
        translated["advertised.listeners"] = (
            f"PLAINTEXT://{advertised_host}:{properties.get('advertised.port', port)}"
        )
    return translated


def _resolve_node_id(static: Mapping[str, str]) -> int:
    node_id, broker_id = BROKER_OPTIONS["node.id"], BROKER_OPTIONS["broker.id"]
    given = [option.parse(static[option.name]) for option in (node_id, broker_id) if option.name in static]
    roles = BROKER_OPTIONS["process.roles"].parse(static.get("process.roles"))
    if isinstance(roles, tuple) and roles and "broker" not in roles:
        raise ConfigError("process.roles must include broker: there is no separate controller to run")
    if len(set(given)) > 1:
        raise ConfigError(f"node.id is {given[0]} but broker.id is {given[1]}; leave one of them out")
    # broker.id=-1 asked older Kafka versions to pick a number.
    return next((number for number in given if isinstance(number, int) and number >= 0), 1)


def _resolve_log_dirs(static: Mapping[str, str]) -> tuple[str, ...]:
    for name in ("log.dirs", "log.dir"):
        directories = BROKER_OPTIONS[name].parse(static.get(name))
        if isinstance(directories, tuple) and directories:
            return directories
    return _texts({}, "log.dir")


def _texts(static: Mapping[str, str], name: str) -> tuple[str, ...]:
    option = BROKER_OPTIONS[name]
    value = option.parse(static[name]) if name in static else option.default
    return value if isinstance(value, tuple) else ()


def _resolve_listeners(static: Mapping[str, str]) -> tuple[Listener, ...]:
    controllers = {name.upper() for name in _texts(static, "controller.listener.names")}
    endpoints = []
    for text in _texts(static, "listeners"):
        endpoint = parse_endpoint("listeners", text)
        if endpoint.name in controllers:
            logger.info("listener %s is for KRaft controllers and is not opened", endpoint.name)
        else:
            endpoints.append(endpoint)
    advertised = {
        endpoint.name: endpoint
        for text in _texts(static, "advertised.listeners")
        if (endpoint := parse_endpoint("advertised.listeners", text)).name not in controllers
    }
    protocols = parse_protocol_map(
        str(
            static.get(
                "listener.security.protocol.map", BROKER_OPTIONS["listener.security.protocol.map"].default
            )
        )
    )
    return resolve_listeners(endpoints, advertised, protocols)
