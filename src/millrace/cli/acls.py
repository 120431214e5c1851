"""`millrace acls`: Kafka's kafka-acls."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import product

import click

from millrace.admin.acls import create_acls, delete_acls, describe_acls
from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand, Target, broker_options, exactly_one
from millrace.cli.terminal.session import connected
from millrace.client import Client
from millrace.security.acls import ANY, WILDCARD, Acl, AclOperation, AclResource, PatternType, Permission
from millrace.wire.messages.create_acls import AclCreation
from millrace.wire.messages.delete_acls import DeleteAclsFilter
from millrace.wire.messages.describe_acls import DescribeAclsRequest

CLUSTER_NAME = "kafka-cluster"
PATTERNS = {pattern.name.lower(): pattern for pattern in PatternType}
# Both spellings of kafka-acls: Read and READ, DescribeConfigs and DESCRIBE_CONFIGS.
OPERATIONS = {operation.name.replace("_", "").lower(): operation for operation in AclOperation}

_O = AclOperation
PRODUCER = {AclResource.TOPIC: (_O.WRITE, _O.DESCRIBE, _O.CREATE)}
CONSUMER = {AclResource.TOPIC: (_O.READ, _O.DESCRIBE), AclResource.GROUP: (_O.READ,)}
TRANSACTIONS = (_O.WRITE, _O.DESCRIBE)

Resource = tuple[AclResource, str]


@click.command("acls", cls=KafkaCommand)
@broker_options(broker_list=False)
@click.option("--add", is_flag=True, help="Add ACLs.")
@click.option("--remove", is_flag=True, help="Remove ACLs.")
@click.option("--list", "list_", is_flag=True, help="List ACLs.")
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic; * is every topic.")
@click.option("--group", "groups", multiple=True, metavar="NAME", help="A consumer group; * is every group.")
@click.option("--transactional-id", "ids", multiple=True, metavar="ID", help="A transactional id.")
@click.option("--cluster", is_flag=True, help="The cluster.")
@click.option("--delegation-token", "tokens", multiple=True, metavar="ID", help="A delegation token.")
@click.option("--user-principal", "users", multiple=True, metavar="USER", help="A user.")
@click.option(
    "--resource-pattern-type",
    type=click.Choice([*PATTERNS], case_sensitive=False),
    default="literal",
    show_default=True,
    help="How names select resources.",
)
@click.option("--allow-principal", multiple=True, metavar="User:NAME", help="Principal to allow.")
@click.option("--deny-principal", multiple=True, metavar="User:NAME", help="Principal to deny.")
@click.option("--principal", "principals", multiple=True, metavar="User:NAME", help="List only its ACLs.")
@click.option("--allow-host", multiple=True, metavar="HOST", help="Host from which it is allowed.")
@click.option("--deny-host", multiple=True, metavar="HOST", help="Host from which it is denied.")
@click.option("--operation", "operations", multiple=True, metavar="NAME", help="Operation; All by default.")
@click.option("--producer", is_flag=True, help="All that a producer needs on the topics.")
@click.option("--consumer", is_flag=True, help="All that a consumer needs on the topics and groups.")
@click.option("--idempotent", is_flag=True, help="With --producer: allow idempotent writes.")
@click.option("--force", is_flag=True, help="Do not ask before removing.")
def command(
    *,
    target: Target,
    add: bool,
    remove: bool,
    list_: bool,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    ids: tuple[str, ...],
    cluster: bool,
    tokens: tuple[str, ...],
    users: tuple[str, ...],
    resource_pattern_type: str,
    allow_principal: tuple[str, ...],
    deny_principal: tuple[str, ...],
    principals: tuple[str, ...],
    allow_host: tuple[str, ...],
    deny_host: tuple[str, ...],
    operations: tuple[str, ...],
    producer: bool,
    consumer: bool,
    idempotent: bool,
    force: bool,
) -> None:
    """Add, remove and list access control lists."""
    action = exactly_one(add=add, remove=remove, list=list_)
    pattern = PATTERNS[resource_pattern_type.lower()]
    resources: list[Resource] = [
        *((AclResource.TOPIC, name) for name in topics),
        *((AclResource.GROUP, name) for name in groups),
        *((AclResource.TRANSACTIONAL_ID, name) for name in ids),
        *((AclResource.DELEGATION_TOKEN, name) for name in tokens),
        *((AclResource.USER, name) for name in users),
        *([(AclResource.CLUSTER, CLUSTER_NAME)] if cluster else []),
    ]
    if not resources and action != "list" and not idempotent:
        raise CommandError("name a resource: --topic, --group, --cluster, --transactional-id, ...")
    wanted = _operations(resources, operations, producer=producer, consumer=consumer, idempotent=idempotent)
    rules = [
        *product(allow_principal, allow_host or (WILDCARD,), (Permission.ALLOW,)),
        *product(deny_principal, deny_host or (WILDCARD,), (Permission.DENY,)),
    ]
    if action == "add" and not rules:
        raise CommandError("name a principal: --allow-principal User:NAME or --deny-principal User:NAME")
    acls = [
        Acl(*resource, pattern, principal, host, operation, permission)
        for resource, allowed in wanted.items()
        for operation, (principal, host, permission) in product(allowed, rules)
    ]
    with connected(target) as session:
        if action == "add":
            session.run(_add(session.client, acls, pattern))
        elif action == "remove":
            session.run(_remove(session.client, acls, resources, pattern, force=force))
        session.run(_list(session.client, resources, pattern, principals if action == "list" else ()))


def _operations(
    resources: Iterable[Resource],
    names: Iterable[str],
    *,
    producer: bool,
    consumer: bool,
    idempotent: bool,
) -> dict[Resource, list[AclOperation]]:
    """The operations on each resource."""
    given = [_operation(name) for name in names] or ([] if producer or consumer else [AclOperation.ALL])
    wanted: dict[Resource, list[AclOperation]] = {}
    for resource in resources:
        kind = resource[0]
        chosen = list(given)
        if producer:
            chosen += PRODUCER.get(kind, TRANSACTIONS if kind is AclResource.TRANSACTIONAL_ID else ())
        if consumer:
            chosen += CONSUMER.get(kind, ())
        wanted[resource] = list(dict.fromkeys(chosen))
    if idempotent:
        cluster = wanted.setdefault((AclResource.CLUSTER, CLUSTER_NAME), [])
        cluster.append(AclOperation.IDEMPOTENT_WRITE)
    return wanted


def _operation(name: str) -> AclOperation:
    try:
        return OPERATIONS[name.replace("_", "").lower()]
    except KeyError:
        raise CommandError(f"there is no operation {name}; they are {', '.join(OPERATIONS)}") from None


async def _add(client: Client, acls: list[Acl], pattern: PatternType) -> None:
    if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise CommandError("--add takes the pattern types literal and prefixed")
    for resource in dict.fromkeys((acl.resource, acl.name) for acl in acls):
        own = [acl for acl in acls if (acl.resource, acl.name) == resource]
        _print_acls("Adding ACLs", *resource, pattern, own)
    creations = [
        AclCreation(
            acl.resource, acl.name, acl.pattern, acl.principal, acl.host, acl.operation, acl.permission
        )
        for acl in acls
    ]
    await create_acls(client, creations)


async def _remove(
    client: Client, acls: list[Acl], resources: list[Resource], pattern: PatternType, *, force: bool
) -> None:
    """Remove these ACLs, or without principals all ACLs of the resources."""
    filters = [
        DeleteAclsFilter(
            acl.resource, acl.name, acl.pattern, acl.principal, acl.host, acl.operation, acl.permission
        )
        for acl in acls
    ] or [DeleteAclsFilter(kind, name, pattern, None, None, ANY, ANY) for kind, name in resources]
    if not force:
        named = ", ".join(f"{kind.name.lower()} {name}" for kind, name in resources)
        if not sys.stdin.isatty():
            raise CommandError("--remove asks before it removes; add --force to remove without a question")
        click.confirm(f"Remove the ACLs of {named}?", abort=True, err=True)
    await delete_acls(client, filters)


async def _list(
    client: Client, resources: list[Resource], pattern: PatternType, principals: tuple[str, ...]
) -> None:
    everything: list[tuple[int, str | None]] = [(ANY, None)]
    for kind, name in resources or everything:
        for principal in principals or (None,):
            # Without a resource, ACLs of every pattern are listed.
            wanted = DescribeAclsRequest(
                kind, name, pattern if name is not None else ANY, principal, None, ANY, ANY
            )
            for found in await describe_acls(client, wanted):
                acls = [
                    Acl(
                        AclResource(found.resource_type),
                        found.resource_name,
                        PatternType(found.pattern_type),
                        acl.principal,
                        acl.host,
                        AclOperation(acl.operation),
                        Permission(acl.permission_type),
                    )
                    for acl in found.acls
                ]
                _print_acls("Current ACLs", *acls[0][:3], acls)


def _print_acls(title: str, kind: AclResource, name: str, pattern: PatternType, acls: Iterable[Acl]) -> None:
    click.echo(
        f"{title} for resource `ResourcePattern(resourceType={kind.name}, name={name},"
        f" patternType={pattern.name})`:"
    )
    for acl in acls:
        click.echo(
            f"\t(principal={acl.principal}, host={acl.host}, operation={acl.operation.name},"
            f" permissionType={acl.permission.name})"
        )
    click.echo()
