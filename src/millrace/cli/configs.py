"""`millrace configs`: Kafka's kafka-configs."""

import re
from pathlib import Path

import click

from millrace.admin.cluster import describe_cluster
from millrace.admin.configs import (
    BROKER_DEFAULTS,
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    ResourceType,
    alter_configs,
    describe_configs,
    list_configured,
)
from millrace.admin.groups import list_groups
from millrace.admin.topics import list_topics
from millrace.cli import user_configs
from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand, Target, broker_options, exactly_one, read_properties
from millrace.cli.terminal.session import connected
from millrace.client import Client

TYPES = {
    "topics": ResourceType.TOPIC,
    "brokers": ResourceType.BROKER,
    "broker-loggers": ResourceType.BROKER_LOGGER,
    "groups": ResourceType.GROUP,
}
LATER_TYPES = ("client-metrics",)

# A comma inside square brackets belongs to the value.
_COMMA = re.compile(r",(?![^\[\]]*\])")


@click.command("configs", cls=KafkaCommand)
@broker_options()
@click.option("--describe", is_flag=True, help="Show the settings.")
@click.option("--alter", is_flag=True, help="Change settings.")
@click.option(
    "--entity-type", "entity_types", multiple=True, metavar="|".join(TYPES), help="Kind of resource."
)
@click.option("--entity-name", "entity_names", multiple=True, metavar="NAME", help="Name or id.")
@click.option("--entity-default", is_flag=True, help="The defaults of all brokers, users or clients.")
@click.option("--user", metavar="NAME", help="Short for --entity-type users --entity-name NAME.")
@click.option("--user-defaults", is_flag=True, help="The defaults of all users.")
@click.option("--client", "client_id", metavar="ID", help="A client id; with --user, of that user only.")
@click.option("--client-defaults", is_flag=True, help="The defaults of all client ids.")
@click.option("--ip", metavar="ADDRESS", help="Short for --entity-type ips --entity-name ADDRESS.")
@click.option("--ip-defaults", is_flag=True, help="The defaults of all addresses.")
@click.option("--topic", metavar="NAME", help="Short for --entity-type topics --entity-name NAME.")
@click.option("--broker", metavar="ID", help="Short for --entity-type brokers --entity-name ID.")
@click.option("--broker-defaults", is_flag=True, help="Short for --entity-type brokers --entity-default.")
@click.option(
    "--broker-logger", metavar="ID", help="Short for --entity-type broker-loggers --entity-name ID."
)
@click.option("--group", metavar="NAME", help="Short for --entity-type groups --entity-name NAME.")
@click.option("--all", "describe_all", is_flag=True, help="Show all settings, including defaults.")
@click.option("--add-config", metavar="K=V,K=[V,V],...", help="Settings to add or change.")
@click.option(
    "--add-config-file", type=click.Path(path_type=Path), help="Properties file of settings to add."
)
@click.option("--delete-config", metavar="K,K,...", help="Settings to remove.")
@click.option("--force", is_flag=True, hidden=True)
def command(
    *,
    target: Target,
    describe: bool,
    alter: bool,
    entity_types: tuple[str, ...],
    entity_names: tuple[str, ...],
    entity_default: bool,
    user: str | None,
    user_defaults: bool,
    client_id: str | None,
    client_defaults: bool,
    ip: str | None,
    ip_defaults: bool,
    topic: str | None,
    broker: str | None,
    broker_defaults: bool,
    broker_logger: str | None,
    group: str | None,
    describe_all: bool,
    add_config: str | None,
    add_config_file: Path | None,
    delete_config: str | None,
    force: bool,
) -> None:
    """Show and change the configuration of topics, brokers, groups, users and clients."""
    action = exactly_one(describe=describe, alter=alter)
    added = _added(add_config, add_config_file)
    deleted = [name.strip() for name in (delete_config or "").split(",") if name.strip()]
    given = {
        "users": (user, user_defaults),
        "clients": (client_id, client_defaults),
        "ips": (ip, ip_defaults),
    }
    kinds, entity = _user_entity(entity_types, entity_names, entity_default, given)
    if kinds:
        with connected(target) as session:
            if action == "describe":
                session.run(user_configs.describe(session.client, entity, kinds))
            elif len(entity) < len(kinds):
                raise CommandError("--alter needs --entity-name NAME or --entity-default")
            else:
                session.run(user_configs.alter(session.client, entity, added, deleted))
        return
    entity_type = entity_types[-1] if entity_types else None
    entity_name = entity_names[-1] if entity_names else None
    if entity_default or broker_defaults:
        entity_name = BROKER_DEFAULTS
    short_forms = {"topics": topic, "brokers": broker, "broker-loggers": broker_logger, "groups": group}
    for kind, name in short_forms.items():
        if name is not None:
            entity_type, entity_name = kind, name
    if broker_defaults:
        entity_type = "brokers"
    resource_type = _resource_type(entity_type)
    if entity_name is not None:
        _check_name(resource_type, entity_name)
    with connected(target) as session:
        if action == "describe":
            session.run(_describe(session.client, resource_type, entity_name, describe_all))
        else:
            if entity_name is None:
                raise CommandError("--alter needs --entity-name NAME")
            resource = ConfigResource(resource_type, entity_name)
            session.run(_alter(session.client, resource, added, deleted))


def _user_entity(
    types: tuple[str, ...],
    names: tuple[str, ...],
    is_default: bool,
    given: dict[str, tuple[str | None, bool]],
) -> tuple[list[str], dict[str, str | None]]:
    """The kinds of user, client or address that are meant, and the names of those that are named."""
    entity: dict[str, str | None] = {}
    kinds = [user_configs.KINDS[name] for name in types if name in user_configs.KINDS]
    unnamed = list(names)
    for kind in kinds:
        if unnamed:
            entity[kind] = unnamed.pop(0)
        elif is_default:
            entity[kind] = None
    for word, (name, defaults) in given.items():
        if name is not None or defaults:
            kind = user_configs.KINDS[word]
            kinds.append(kind)
            entity[kind] = name
    return kinds, entity


def _resource_type(entity_type: str | None) -> ResourceType:
    if entity_type is None:
        raise CommandError("name the resource: --topic NAME, --broker ID, --group NAME or --entity-type TYPE")
    if entity_type in LATER_TYPES:
        raise CommandError(
            f"settings of {entity_type} are not supported yet; supported are {', '.join(TYPES)}"
        )
    if entity_type not in TYPES:
        raise CommandError(f"Invalid entity type {entity_type}; it must be one of {', '.join(TYPES)}")
    return TYPES[entity_type]


def _check_name(resource_type: ResourceType, name: str) -> None:
    if resource_type is ResourceType.TOPIC:
        if not name:
            raise CommandError("topics have no defaults of their own; set them with --broker-defaults")
    elif resource_type is ResourceType.GROUP:
        if not name:
            raise CommandError("groups have no defaults of their own; set the broker's group.consumer.*")
    elif name and not name.isdecimal():
        raise CommandError(f"{name!r} is not a broker id")


# Describing


async def _describe(
    client: Client, resource_type: ResourceType, name: str | None, describe_all: bool
) -> None:
    existing = await _entities(client, resource_type)
    if name is not None and name not in (BROKER_DEFAULTS, *existing):
        click.echo(f"The {_kind(resource_type)} '{name}' doesn't exist and doesn't have dynamic config.")
        return
    for entity in existing if name is None else [name]:
        resource = ConfigResource(resource_type, entity)
        if entity == BROKER_DEFAULTS:
            click.echo("Default configs for brokers in the cluster are:")
        else:
            how_many = "All" if describe_all else "Dynamic"
            click.echo(f"{how_many} configs for {_kind(resource_type)} {entity} are:")
        entries = (await describe_configs(client, [resource]))[resource]
        for entry in sorted(entries, key=lambda entry: entry.name):
            if describe_all or _is_dynamic(resource, entry):
                click.echo(_line(entry))


def _kind(resource_type: ResourceType) -> str:
    return resource_type.name.lower().replace("_", "-")


async def _entities(client: Client, resource_type: ResourceType) -> list[str]:
    if resource_type is ResourceType.TOPIC:
        return list(await list_topics(client))
    if resource_type is ResourceType.GROUP:
        existing = [group.group_id for group in await list_groups(client)]
        return sorted({*existing, *await list_configured(client, resource_type)})
    broker_ids = [str(broker_id) for broker_id in (await describe_cluster(client)).broker_ids]
    return [*broker_ids, BROKER_DEFAULTS] if resource_type is ResourceType.BROKER else broker_ids


def _is_dynamic(resource: ConfigResource, entry: ConfigEntry) -> bool:
    if resource.type is ResourceType.BROKER_LOGGER:
        return True
    if resource.type is ResourceType.TOPIC:
        return entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    if resource.type is ResourceType.GROUP:
        return entry.source is ConfigSource.DYNAMIC_GROUP_CONFIG
    if resource.name == BROKER_DEFAULTS:
        return entry.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return entry.source is ConfigSource.DYNAMIC_BROKER_CONFIG


def _line(entry: ConfigEntry) -> str:
    synonyms = ", ".join(
        f"{synonym.source.name}:{synonym.name}={_text(synonym.value)}" for synonym in entry.synonyms
    )
    sensitive = str(entry.is_sensitive).lower()
    return f"  {entry.name}={_text(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _text(value: str | None) -> str:
    return "null" if value is None else value


# Altering


def _added(add_config: str | None, add_config_file: Path | None) -> dict[str, str]:
    added = read_properties(add_config_file) if add_config_file else {}
    for pair in _COMMA.split(add_config) if add_config else []:
        name, equals, value = pair.strip().partition("=")
        if not equals or not name:
            raise CommandError(
                f"--add-config {pair!r}: write key=value; a value with commas goes into brackets: k=[v,v]"
            )
        added[name.strip()] = value.strip().removeprefix("[").removesuffix("]")
    return added


async def _alter(client: Client, resource: ConfigResource, added: dict[str, str], deleted: list[str]) -> None:
    if not added and not deleted:
        raise CommandError("--alter needs --add-config, --add-config-file or --delete-config")
    changes = [ConfigChange(name, value) for name, value in added.items()]
    changes += [ConfigChange(name, operation=ConfigOperation.DELETE) for name in deleted]
    (await alter_configs(client, {resource: changes})).all()
    if resource.name == BROKER_DEFAULTS:
        click.echo("Completed updating default config for brokers in the cluster.")
    else:
        click.echo(f"Completed updating config for {_kind(resource.type)} {resource.name}.")
