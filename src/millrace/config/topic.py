"""A topic's options, and the resolved configuration that a partition's log works with."""

from dataclasses import dataclass

from .options import (
    DAY_MS,
    HOUR_MS,
    LONG_MAX,
    MINUTE_MS,
    SECOND_MS,
    ConfigError,
    Option,
    Value,
    boolean,
    double,
    integer,
    long,
    options_of,
    string,
    strings,
)


@dataclass(frozen=True, slots=True)
class LogConfig:
    """A topic's configuration with every default filled in; immutable."""

    cleanup_policy: tuple[str, ...] = strings(
        ("delete",),
        "Cleanup of old segments: delete by age and size, compact by key, both, or neither when empty.",
        choices=("compact", "delete"),
        synonyms=("log.cleanup.policy",),
    )
    compression_gzip_level: int = integer(
        -1,
        "Level for recompressing with gzip; -1 is the codec's own default.",
        at_least=1,
        at_most=9,
        also=-1,
        synonyms=("compression.gzip.level",),
    )
    compression_lz4_level: int = integer(
        9, "Level for recompressing with lz4.", at_least=1, at_most=17, synonyms=("compression.lz4.level",)
    )
    compression_type: str = string(
        "producer",
        "Codec that batches are stored with; producer keeps whatever the producer chose.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonyms=("compression.type",),
    )
    compression_zstd_level: int = integer(
        3,
        "Level for recompressing with zstd.",
        at_least=-131072,
        at_most=22,
        synonyms=("compression.zstd.level",),
    )
    delete_retention_ms: int = long(
        DAY_MS,
        "How long compaction keeps a tombstone, so that a reader from the start still sees the deletion.",
        at_least=0,
        synonyms=("log.cleaner.delete.retention.ms",),
    )
    file_delete_delay_ms: int = long(
        MINUTE_MS,
        "How long a removed segment's files stay on disk.",
        at_least=0,
        synonyms=("log.segment.delete.delay.ms",),
    )
    flush_messages: int = long(
        LONG_MAX,
        "Force the log to disk after this many messages.",
        at_least=1,
        synonyms=("log.flush.interval.messages",),
    )
    flush_ms: int = long(
        SECOND_MS,
        "Force the log to disk this long after an append. Kafka's default never does.",
        at_least=0,
        synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    )
    follower_replication_throttled_replicas: tuple[str, ...] = strings(
        (),
        "Followers whose replication is throttled; kept for tools, without effect on a single broker.",
    )
    index_interval_bytes: int = integer(
        4096,
        "Bytes of log between two entries of the offset index.",
        at_least=0,
        synonyms=("log.index.interval.bytes",),
    )
    leader_replication_throttled_replicas: tuple[str, ...] = strings(
        (),
        "Leaders whose replication is throttled; kept for tools, without effect on a single broker.",
    )
    local_retention_bytes: int = long(
        -2,
        "Local share of retention.bytes under tiered storage; -2 means all of it. Without effect here.",
        at_least=-2,
        synonyms=("log.local.retention.bytes",),
    )
    local_retention_ms: int = long(
        -2,
        "Local share of retention.ms under tiered storage; -2 means all of it. Without effect here.",
        at_least=-2,
        synonyms=("log.local.retention.ms",),
    )
    max_compaction_lag_ms: int = long(
        LONG_MAX,
        "A record older than this makes its log due for compaction, however little of the log is dirty.",
        at_least=1,
        synonyms=("log.cleaner.max.compaction.lag.ms",),
    )
    max_message_bytes: int = integer(
        1048588,
        "Largest record batch that is accepted, as stored.",
        at_least=0,
        synonyms=("message.max.bytes",),
    )
    message_timestamp_after_max_ms: int = long(
        HOUR_MS,
        "How far a record's timestamp may lie ahead of the broker's clock.",
        at_least=0,
        synonyms=("log.message.timestamp.after.max.ms",),
    )
    message_timestamp_before_max_ms: int = long(
        LONG_MAX,
        "How far a record's timestamp may lie behind the broker's clock.",
        at_least=0,
        synonyms=("log.message.timestamp.before.max.ms",),
    )
    message_timestamp_type: str = string(
        "CreateTime",
        "Clock that stamps a record: CreateTime keeps the producer's time, LogAppendTime sets the broker's.",
        choices=("CreateTime", "LogAppendTime"),
        synonyms=("log.message.timestamp.type",),
    )
    min_cleanable_dirty_ratio: float = double(
        0.5,
        "Share of the log that must be uncompacted before the cleaner compacts it.",
        at_least=0,
        at_most=1,
        synonyms=("log.cleaner.min.cleanable.ratio",),
    )
    min_compaction_lag_ms: int = long(
        0,
        "Records younger than this are not compacted.",
        at_least=0,
        synonyms=("log.cleaner.min.compaction.lag.ms",),
    )
    min_insync_replicas: int = integer(
        1,
        "Replicas that must have a batch before acks=all is answered, or all if there are fewer.",
        at_least=1,
        synonyms=("min.insync.replicas",),
    )
    preallocate: bool = boolean(
        False, "Reserve a segment's disk space when it is created.", synonyms=("log.preallocate",)
    )
    remote_log_copy_disable: bool = boolean(
        False, "Stops copying to tiered storage; kept for tools, without effect here."
    )
    remote_log_delete_on_disable: bool = boolean(
        False, "Deletes tiered data when tiering is switched off; kept for tools, without effect here."
    )
    remote_storage_enable: bool = boolean(False, "Tiered storage; cannot be switched on here.")
    retention_bytes: int = long(
        -1,
        "Size beyond which a partition's oldest segments are deleted; -1 is no limit.",
        synonyms=("log.retention.bytes",),
    )
    retention_ms: int = long(
        7 * DAY_MS,
        "Age beyond which a partition's segments are deleted; -1 is no limit.",
        at_least=-1,
        synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    )
    segment_bytes: int = integer(
        1 << 30,
        "Size of a segment file. Kafka requires at least 1048576.",
        at_least=14,
        synonyms=("log.segment.bytes",),
    )
    segment_index_bytes: int = integer(
        10 << 20,
        "Largest size of a segment's index files.",
        at_least=4,
        synonyms=("log.index.size.max.bytes",),
    )
    segment_jitter_ms: int = long(
        0,
        "Random time taken off segment.ms, so that partitions do not all roll at once.",
        at_least=0,
        synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours"),
    )
    segment_ms: int = long(
        7 * DAY_MS,
        "Age at which a segment is closed and a new one begun.",
        at_least=1,
        synonyms=("log.roll.ms", "log.roll.hours"),
    )
    unclean_leader_election_enable: bool = boolean(
        False,
        "Whether a lagging replica may become leader, losing the records that it lacks.",
        synonyms=("unclean.leader.election.enable",),
    )


TOPIC_OPTIONS: dict[str, Option] = {option.name: option for option in options_of(LogConfig)}


def parse_topic_configs(texts: dict[str, str]) -> dict[str, Value]:
    """Read a topic's overrides into LogConfig's arguments; raises ConfigError for the first bad one."""
    values: dict[str, Value] = {}
    for name, text in texts.items():
        option = TOPIC_OPTIONS.get(name)
        if option is None:
            raise ConfigError(f"Unknown topic config name: {name}{_hint(name)}")
        values[option.attribute] = option.parse(text)
    return values


def _hint(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, TOPIC_OPTIONS, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def check_log_config(config: LogConfig) -> None:
    """Check rules that involve several options."""
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ConfigError(
            f"min.compaction.lag.ms ({config.min_compaction_lag_ms}) must not be greater than "
            f"max.compaction.lag.ms ({config.max_compaction_lag_ms})"
        )
    if config.remote_storage_enable:
        raise ConfigError("remote.storage.enable cannot be true: this broker has no tiered storage")
    for replicas in (
        config.leader_replication_throttled_replicas,
        config.follower_replication_throttled_replicas,
    ):
        for replica in replicas:
            partition, _, broker = replica.partition(":")
            if replica != "*" and not (partition.isdigit() and broker.isdigit()):
                raise ConfigError(
                    f"throttled replicas are * or a list of partition:broker pairs, got {replica!r}"
                )
