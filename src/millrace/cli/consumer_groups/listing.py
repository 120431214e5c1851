"""`--list`: the consumer groups, with their types and states on demand."""

import click

from millrace.admin.groups import list_groups
from millrace.cli.consumer_groups.table import Column, print_table
from millrace.cli.terminal.errors import CommandError
from millrace.client import Client

STATES = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Stable",
    "Empty",
    "Dead",
)
TYPES = ("Classic", "Consumer")
UNKNOWN = "Unknown"


async def print_groups(client: Client, state: str | None, type_: str | None) -> None:
    """Print the groups; a filter that is given, even an empty one, adds its column."""
    states, types = parse_filter("state", state, STATES), parse_filter("types", type_, TYPES)
    groups = [
        group for group in await list_groups(client, states=states, types=types) if group.is_consumer_group
    ]
    if state is None and type_ is None:
        for group in groups:
            click.echo(group.group_id)
        return
    columns = [Column("GROUP", 10 + max([15, *(len(group.group_id) for group in groups)]))]
    rows: list[list[object]] = [[group.group_id] for group in groups]
    if type_ is not None:
        columns.append(Column("TYPE", 20))
        for row, group in zip(rows, groups, strict=True):
            row.append(_spelling(group.type, TYPES))
    if state is not None:
        columns.append(Column("STATE", 20))
        for row, group in zip(rows, groups, strict=True):
            row.append(_spelling(group.state, STATES))
    print_table(columns, rows)


def parse_filter(name: str, text: str | None, known: tuple[str, ...]) -> list[str]:
    """Parse words separated by commas, in any case."""
    by_lower = {word.lower(): word for word in known}
    words = [word.strip().lower() for word in text.split(",")] if text else []
    if any(word not in by_lower for word in words):
        raise CommandError(f"Invalid {name} list '{text}'. Valid {name.rstrip('s')}s are: {', '.join(known)}")
    return [by_lower[word] for word in words]


def _spelling(name: str, known: tuple[str, ...]) -> str:
    """The spelling of Kafka's tool; brokers write types in lower case."""
    return next((word for word in known if word.lower() == name.lower()), UNKNOWN)
