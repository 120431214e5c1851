"""A group's options, and the resolved configuration that a coordinator works with.

Share and streams groups are not served yet. Their options are kept and checked, for tools that set them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .broker import BrokerConfig
from .options import (
    SECOND_MS,
    ConfigError,
    Option,
    Value,
    boolean,
    integer,
    options_of,
    string,
)

_ISO_DURATION = re.compile(r"P(?=.)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?")


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """A group's configuration with every default filled in; immutable."""

    consumer_assignment_interval_ms: int = integer(
        SECOND_MS,
        "How long a consumer group keeps an assignment before it makes another.",
        at_least=0,
        synonyms=("group.consumer.assignment.interval.ms",),
    )
    consumer_heartbeat_interval_ms: int = integer(
        5 * SECOND_MS,
        "Heartbeat interval that members of a consumer group are given.",
        at_least=1,
        synonyms=("group.consumer.heartbeat.interval.ms",),
    )
    consumer_session_timeout_ms: int = integer(
        45 * SECOND_MS,
        "How long a member of a consumer group may be silent.",
        at_least=1,
        synonyms=("group.consumer.session.timeout.ms",),
    )
    share_assignment_interval_ms: int = integer(
        SECOND_MS,
        "How long a share group keeps an assignment before it makes another.",
        at_least=0,
        synonyms=("group.share.assignment.interval.ms",),
    )
    share_auto_offset_reset: str = string(
        "latest",
        "Start position of a share group: earliest, latest, or by_duration:<PnDTnHnMn.nS> before now.",
    )
    share_delivery_count_limit: int = integer(
        5,
        "Most times that a record is delivered to a share group.",
        at_least=2,
        synonyms=("group.share.delivery.count.limit",),
    )
    share_heartbeat_interval_ms: int = integer(
        5 * SECOND_MS,
        "Heartbeat interval that members of a share group are given.",
        at_least=1,
        synonyms=("group.share.heartbeat.interval.ms",),
    )
    share_isolation_level: str = string(
        "read_uncommitted",
        "Whether a share group gets records of transactions before they are committed.",
        choices=("read_committed", "read_uncommitted"),
    )
    share_partition_max_record_locks: int = integer(
        2000,
        "Most records of a partition that a share group may have acquired at a time.",
        at_least=100,
        synonyms=("group.share.partition.max.record.locks",),
    )
    share_record_lock_duration_ms: int = integer(
        30 * SECOND_MS,
        "How long a record is acquired by a consumer of a share group.",
        at_least=1000,
        synonyms=("group.share.record.lock.duration.ms",),
    )
    share_renew_acknowledge_enable: bool = boolean(
        True, "Whether consumers of a share group may renew the acquisition of a record."
    )
    share_session_timeout_ms: int = integer(
        45 * SECOND_MS,
        "How long a member of a share group may be silent.",
        at_least=1,
        synonyms=("group.share.session.timeout.ms",),
    )
    streams_assignment_interval_ms: int = integer(
        SECOND_MS,
        "How long a streams group keeps an assignment before it makes another.",
        at_least=0,
        synonyms=("group.streams.assignment.interval.ms",),
    )
    streams_heartbeat_interval_ms: int = integer(
        5 * SECOND_MS,
        "Heartbeat interval that members of a streams group are given.",
        at_least=1,
        synonyms=("group.streams.heartbeat.interval.ms",),
    )
    streams_initial_rebalance_delay_ms: int = integer(
        3 * SECOND_MS,
        "How long a new streams group waits for more members before it first balances.",
        at_least=0,
        synonyms=("group.streams.initial.rebalance.delay.ms",),
    )
    streams_num_standby_replicas: int = integer(
        0,
        "Standby replicas of each task of a streams group.",
        at_least=0,
        synonyms=("group.streams.num.standby.replicas",),
    )
    streams_session_timeout_ms: int = integer(
        45 * SECOND_MS,
        "How long a member of a streams group may be silent.",
        at_least=1,
        synonyms=("group.streams.session.timeout.ms",),
    )


GROUP_OPTIONS: dict[str, Option] = {option.name: option for option in options_of(GroupConfig)}


def group_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> GroupConfig:
    """A group's configuration: its own settings over the broker's over the defaults."""
    values: dict[str, Value] = {}
    for option in GROUP_OPTIONS.values():
        if option.name in overrides:
            values[option.attribute] = option.parse(overrides[option.name])
        elif option.synonyms:
            values[option.attribute] = _broker_value(broker, option.synonyms[0])
    return GroupConfig(**values)  # type: ignore[arg-type]  # each option parses to its own field's type


def check_group_configs(broker: BrokerConfig, overrides: Mapping[str, str]) -> None:
    """Raise ConfigError for settings that a group must not have."""
    for name, text in overrides.items():
        option = GROUP_OPTIONS.get(name)
        if option is None:
            raise ConfigError(f"Unknown group config name: {name}")
        _check_limits(broker, option, option.parse(text))
    resolved = group_config(broker, overrides)
    _check_offset_reset(resolved.share_auto_offset_reset)
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if _value(resolved, session) <= _value(resolved, heartbeat):
            raise ConfigError(f"{session} must be greater than {heartbeat}")


def _check_limits(broker: BrokerConfig, option: Option, value: Value) -> None:
    for limit, is_maximum in _limits(option):
        bound = _broker_value(broker, limit)
        assert isinstance(value, int)
        assert isinstance(bound, int)
        if is_maximum and value > bound:
            raise ConfigError(f"{option.name} must be less than or equal to {limit}")
        if not is_maximum and value < bound:
            raise ConfigError(f"{option.name} must be greater than or equal to {limit}")


def _limits(option: Option) -> Iterator[tuple[str, bool]]:
    """The broker options that bound a group's, and whether each is a maximum."""
    from .known import find_broker_option

    kind, _, setting = option.name.partition(".")
    for word, is_maximum in (("min", False), ("max", True)):
        name = f"group.{kind}.{word}.{setting.removeprefix('num.')}"
        if find_broker_option(name) is not None:
            yield name, is_maximum


def _broker_value(broker: BrokerConfig, name: str) -> Value:
    # Options without effect are loaded when a group is first used, not with every import.
    from .known import find_broker_option

    option = find_broker_option(name)
    assert option is not None
    return broker.value(option)


def _value(config: GroupConfig, name: str) -> int:
    value: int = getattr(config, GROUP_OPTIONS[name].attribute)
    return value


def _check_offset_reset(text: str) -> None:
    strategy, colon, duration = text.partition(":")
    if strategy in ("earliest", "latest") and not colon:
        return
    if strategy != "by_duration" or not _ISO_DURATION.fullmatch(duration):
        raise ConfigError(
            f"share.auto.offset.reset must be earliest, latest or by_duration:<PnDTnHnMn.nS>, got {text!r}"
        )
