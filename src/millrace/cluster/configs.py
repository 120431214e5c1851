"""Configs as they are reported, with the source of each value, and changes to them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from millrace.config import (
    BROKER_OPTIONS,
    GROUP_OPTIONS,
    TOPIC_OPTIONS,
    BrokerConfig,
    ConfigError,
    Kind,
    Option,
    Scope,
)
from millrace.config.group import check_group_configs, group_config
from millrace.config.known import find_broker_option, inert_options, nearest_broker_option
from millrace.errors import Error, KafkaError


class ConfigSource(IntEnum):
    """Source of a value, numbered as in DescribeConfigs."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    DYNAMIC_GROUP = 8


class Operation(IntEnum):
    """Operations of IncrementalAlterConfigs on one config."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Change:
    """One step of an incremental change."""

    name: str
    operation: int
    value: str | None


@dataclass(frozen=True, slots=True)
class Synonym:
    """One of the settings that could give a config its value."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A config as it is reported; `synonyms` are in order of precedence, the first one is in effect."""

    name: str
    value: str | None
    source: ConfigSource
    kind: Kind | None
    doc: str | None = None
    read_only: bool = False
    sensitive: bool = False
    synonyms: tuple[Synonym, ...] = ()


# Reporting


def describe_topic(config: BrokerConfig, configs: Mapping[str, str]) -> list[ConfigEntry]:
    """All configs of a topic, whose own settings are `configs`."""
    resolved = config.log_config(dict(configs))
    entries = []
    for option in TOPIC_OPTIONS.values():
        value = option.text(getattr(resolved, option.attribute))
        synonyms = _synonyms(config, option.synonyms)
        if option.name in configs:
            synonyms = (Synonym(option.name, value, ConfigSource.DYNAMIC_TOPIC), *synonyms)
        entries.append(
            ConfigEntry(
                name=option.name,
                value=value,
                source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
                kind=option.kind,
                doc=option.doc,
                synonyms=synonyms,
            )
        )
    return entries


def describe_group(config: BrokerConfig, configs: Mapping[str, str]) -> list[ConfigEntry]:
    """All configs of a group, whose own settings are `configs`."""
    resolved = group_config(config, configs)
    entries = []
    for option in GROUP_OPTIONS.values():
        value = option.text(getattr(resolved, option.attribute))
        if option.synonyms:
            synonyms = _synonyms(config, option.synonyms)
        else:
            synonyms = (Synonym(option.name, option.text(option.default), ConfigSource.DEFAULT),)
        if option.name in configs:
            synonyms = (Synonym(option.name, value, ConfigSource.DYNAMIC_GROUP), *synonyms)
        entries.append(
            ConfigEntry(
                name=option.name,
                value=value,
                source=synonyms[0].source,
                kind=option.kind,
                doc=option.doc,
                synonyms=synonyms,
            )
        )
    return entries


def describe_broker(config: BrokerConfig) -> list[ConfigEntry]:
    """All configs of this broker, those without effect included."""
    options = {**inert_options(), **BROKER_OPTIONS}
    for name in (*config.static, *config.dynamic_defaults, *config.dynamic):
        if option := find_broker_option(name):
            options.setdefault(name, option)
    return [_describe_broker_option(config, option) for option in options.values()]


def _describe_broker_option(config: BrokerConfig, option: Option) -> ConfigEntry:
    synonyms = _synonyms(config, _SYNONYM_GROUPS.get(option.name, (option.name,)))
    if option.name in ("node.id", "broker.id"):
        # One number under two names; the file sets at most one of them.
        defaults = [synonym for synonym in synonyms if synonym.source is ConfigSource.DEFAULT]
        synonyms = (Synonym(option.name, str(config.node_id), ConfigSource.STATIC_BROKER), *defaults)
    value = next((synonym.value for synonym in synonyms if synonym.name == option.name), None)
    return ConfigEntry(
        name=option.name,
        value=value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        kind=option.kind,
        doc=option.doc,
        read_only=option.scope is Scope.READ_ONLY,
        sensitive=option.sensitive,
        synonyms=synonyms,
    )


def describe_broker_defaults(config: BrokerConfig) -> list[ConfigEntry]:
    """The configs that are set for all brokers together."""
    entries = []
    for name, text in config.dynamic_defaults.items():
        option = find_broker_option(name)
        if option is None:
            continue
        value = None if option.sensitive else text
        entries.append(
            ConfigEntry(
                name=name,
                value=value,
                source=ConfigSource.DYNAMIC_DEFAULT_BROKER,
                kind=option.kind,
                doc=option.doc,
                sensitive=option.sensitive,
                synonyms=(Synonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER),),
            )
        )
    return entries


_SYNONYM_GROUPS = {
    option.synonyms[0]: option.synonyms for option in TOPIC_OPTIONS.values() if len(option.synonyms) > 1
}


def _synonyms(config: BrokerConfig, names: Sequence[str]) -> tuple[Synonym, ...]:
    """The settings behind a broker option, strongest first.

    Settings before the first one under the leading name are left out, as in Kafka: with only
    log.retention.hours given, log.retention.ms has no synonyms.
    """
    found = list(_settings(config, names))
    while found and found[0].name != names[0]:
        del found[0]
    return tuple(found)


def _settings(config: BrokerConfig, names: Sequence[str]) -> Iterator[Synonym]:
    for source, layer in (
        (ConfigSource.DYNAMIC_BROKER, config.dynamic),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, config.dynamic_defaults),
        (ConfigSource.STATIC_BROKER, config.static),
    ):
        for name in names:
            option = find_broker_option(name)
            if name in layer and option is not None:
                yield Synonym(name, None if option.sensitive else layer[name], source)
    for name in names:
        option = find_broker_option(name)
        if option is not None and option.default is not None:
            yield Synonym(name, option.text(option.default), ConfigSource.DEFAULT)


# Changing


def apply_changes(
    current: Mapping[str, str], changes: Sequence[Change], find_option: Callable[[str], Option | None]
) -> dict[str, str]:
    """The settings after an incremental change; names and values are not checked yet."""
    if len({change.name for change in changes}) < len(changes):
        raise KafkaError(Error.INVALID_REQUEST, "Error due to duplicate config keys")
    settings = dict(current)
    for change in changes:
        if change.operation == Operation.DELETE:
            settings.pop(change.name, None)
        elif change.value is None:
            raise KafkaError(Error.INVALID_REQUEST, f"Null value not supported for : {change.name}")
        elif change.operation == Operation.SET:
            settings[change.name] = change.value
        elif change.operation in (Operation.APPEND, Operation.SUBTRACT):
            settings[change.name] = _changed_list(settings, change, find_option(change.name))
        else:
            raise KafkaError(Error.INVALID_REQUEST, f"Unknown operation type {change.operation}")
    return settings


def _changed_list(settings: Mapping[str, str], change: Change, option: Option | None) -> str:
    if option is None or option.kind is not Kind.LIST:
        verb = Operation(change.operation).name
        raise KafkaError(
            Error.INVALID_CONFIG, f"Can't {verb} to key {change.name} because its type is not LIST."
        )
    before = settings.get(change.name, option.text(option.default)) or ""
    items = [item.strip() for item in before.split(",") if item.strip()]
    given = [item.strip() for item in (change.value or "").split(",") if item.strip()]
    if change.operation == Operation.APPEND:
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    return ",".join(items)


def replacement(configs: Sequence[tuple[str, str | None]]) -> dict[str, str]:
    """The settings of a change that replaces all of them."""
    settings: dict[str, str] = {}
    for name, value in configs:
        if value is None:
            raise KafkaError(Error.INVALID_REQUEST, f"Null value not supported for : {name}")
        if name in settings:
            raise KafkaError(Error.INVALID_REQUEST, f"{name} is set twice.")
        settings[name] = value
    return settings


def check_broker_settings(
    current: Mapping[str, str], settings: Mapping[str, str], *, all_brokers: bool
) -> None:
    """Reject new dynamic settings that are wrong, or cannot be changed at run time or at this level."""
    changed = [name for name, text in settings.items() if current.get(name) != text]
    options = {name: _broker_option(name) for name in changed}
    fixed = [name for name, option in options.items() if option.scope is Scope.READ_ONLY]
    if fixed:
        raise KafkaError(
            Error.INVALID_REQUEST, f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
        )
    per_broker = [name for name, option in options.items() if option.scope is Scope.PER_BROKER]
    if all_brokers and per_broker:
        raise KafkaError(
            Error.INVALID_REQUEST,
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"[{', '.join(per_broker)}]",
        )
    for name, option in options.items():
        try:
            option.parse(settings[name])
        except ConfigError as error:
            raise KafkaError(Error.INVALID_REQUEST, str(error)) from error


def check_group_settings(config: BrokerConfig, settings: Mapping[str, str]) -> None:
    """Reject settings that a group must not have."""
    try:
        check_group_configs(config, settings)
    except ConfigError as error:
        raise KafkaError(Error.INVALID_CONFIG, str(error)) from error


def _broker_option(name: str) -> Option:
    option = find_broker_option(name)
    if option is None:
        nearest = nearest_broker_option(name)
        hint = f"; did you mean {nearest}?" if nearest else ""
        raise KafkaError(Error.INVALID_CONFIG, f"Unknown broker config name: {name}{hint}")
    return option
