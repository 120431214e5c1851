"""`millrace configs` for users, clients and addresses: SCRAM credentials and quotas."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import click

from millrace.admin.users import (
    Password,
    describe_credentials,
    describe_quotas,
    set_passwords,
    set_quotas,
)
from millrace.cli.terminal.errors import CommandError
from millrace.client import Client
from millrace.crypto.scram import BY_NAME, MIN_ITERATIONS
from millrace.wire.messages.describe_client_quotas import ComponentData

KINDS = {"users": "user", "clients": "client-id", "ips": "ip"}
TITLES = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
EXACT, DEFAULT, ANY = 0, 1, 2

Entity = Mapping[str, str | None]
"""Names by kind; None is the default of the kind."""

# Stands for a password on standard input, which no process list shows.
FROM_STDIN = "-"


async def alter(client: Client, entity: Entity, added: Mapping[str, str], deleted: Sequence[str]) -> None:
    """Set and delete the settings of an entity."""
    if not added and not deleted:
        raise CommandError("--alter needs --add-config, --add-config-file or --delete-config")
    passwords = [_password(name, text) for name, text in added.items() if name in BY_NAME]
    dropped = [BY_NAME[name] for name in deleted if name in BY_NAME]
    if passwords or dropped:
        user = entity.get("user")
        if user is None or len(entity) > 1:
            raise CommandError("SCRAM credentials belong to one user: --entity-type users --entity-name NAME")
        await set_passwords(client, user, passwords, dropped)
    quotas = {name: _number(name, text) for name, text in added.items() if name not in BY_NAME}
    gone = [name for name in deleted if name not in BY_NAME]
    if quotas or gone:
        await set_quotas(client, entity, quotas, gone)
    for kind, name in entity.items():
        word = next(word for word, known in KINDS.items() if known == kind).removesuffix("s")
        click.echo(
            f"Completed updating {'default ' if name is None else ''}config for {word} {name or ''}".strip()
            + "."
        )


def _password(mechanism: str, text: str) -> Password:
    """Read `iterations=8192,password=secret`; the password comes last, as it may hold commas."""
    head, found, password = text.partition("password=")
    if not found:
        raise CommandError(f"--add-config {mechanism}=[password=...]: the password is missing")
    iterations = str(MIN_ITERATIONS)
    for option in filter(None, (part.strip() for part in head.split(","))):
        name, _, iterations = option.partition("=")
        if name != "iterations" or not iterations.isdecimal():
            raise CommandError(f"--add-config {mechanism}=[iterations=NUMBER,password=...]")
    if password == FROM_STDIN:
        password = (
            click.prompt("Password", hide_input=True, err=True)
            if sys.stdin.isatty()
            else sys.stdin.readline().rstrip("\n")
        )
    if not password:
        raise CommandError("the password is empty")
    return Password(BY_NAME[mechanism], password, int(iterations))


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise CommandError(f"--add-config {name}={text}: a quota is a number") from None


async def describe(client: Client, entity: Entity, kinds: Sequence[str]) -> None:
    """Print the settings of an entity, or of all entities of these kinds."""
    components = [
        ComponentData(
            kind, ANY if kind not in entity else DEFAULT if entity[kind] is None else EXACT, entity.get(kind)
        )
        for kind in kinds
    ]
    for entry in await describe_quotas(client, components):
        words = [
            f"the default {TITLES[part.entity_type]}"
            if part.entity_name is None
            else f"{TITLES[part.entity_type]} '{part.entity_name}'"
            for part in entry.entity
        ]
        values = ", ".join(f"{value.key}={value.value}" for value in entry.values)
        click.echo(f"Quota configs for {', '.join(words)} are {values}")
    if list(kinds) == ["user"] and not ("user" in entity and entity["user"] is None):
        for user, found in (await describe_credentials(client, entity.get("user"))).items():
            values = ", ".join(
                f"{mechanism.text}=iterations={iterations}" for mechanism, iterations in found.items()
            )
            click.echo(f"SCRAM credential configs for user-principal '{user}' are {values}")
