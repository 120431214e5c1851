"""`--list`: the groups there are, with their types and states on demand."""

import click

from millrace.cli.client import Client
from millrace.cli.consumer_groups.table import Column, print_table
from millrace.cli.coordinators import until_coordinated
from millrace.cli.errors import CommandError, check
from millrace.wire.messages import list_groups as api

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

# Groups of other protocols, such as Kafka Connect's, are not consumers; those who only commit have none.
CONSUMER_PROTOCOLS = ("consumer", "")
UNKNOWN = "Unknown"


def list_groups(client: Client, states: list[str], types: list[str]) -> list[api.ListedGroup]:
    """Consumer groups in the order of their names; empty lists let all states and types pass."""
    node_ids = [broker.node_id for broker in client.metadata([]).brokers]
    found = [group for node_id in node_ids for group in _list_on(client, node_id, states, types or [*TYPES])]
    return sorted(found, key=lambda group: group.group_id)


def _list_on(client: Client, node_id: int, states: list[str], types: list[str]) -> list[api.ListedGroup]:
    request = api.ListGroupsRequest(states_filter=states, types_filter=types)

    def ask() -> list[api.ListedGroup]:
        response = client.broker(node_id).send(request, api.ListGroupsResponse)
        check(response.error_code)
        return response.groups

    return [group for group in until_coordinated(client, ask) if group.protocol_type in CONSUMER_PROTOCOLS]


def print_groups(client: Client, state: str | None, type_: str | None) -> None:
    """Print groups; a filter that is given, even an empty one, adds its column."""
    groups = list_groups(client, parse_filter("state", state, STATES), parse_filter("types", type_, TYPES))
    if state is None and type_ is None:
        for group in groups:
            click.echo(group.group_id)
        return
    columns = [Column("GROUP", 10 + max([15, *(len(group.group_id) for group in groups)]))]
    rows: list[list[object]] = [[group.group_id] for group in groups]
    if type_ is not None:
        columns.append(Column("TYPE", 20))
        for row, group in zip(rows, groups, strict=True):
            row.append(_spelled(group.group_type, TYPES))
    if state is not None:
        columns.append(Column("STATE", 20))
        for row, group in zip(rows, groups, strict=True):
            row.append(_spelled(group.group_state, STATES))
    print_table(columns, rows)


def parse_filter(what: str, text: str | None, known: tuple[str, ...]) -> list[str]:
    """Words with commas between, in any case."""
    by_lower = {name.lower(): name for name in known}
    words = [word.strip().lower() for word in text.split(",")] if text else []
    if any(word not in by_lower for word in words):
        raise CommandError(f"Invalid {what} list '{text}'. Valid {what.rstrip('s')}s are: {', '.join(known)}")
    return [by_lower[word] for word in words]


def _spelled(name: str, known: tuple[str, ...]) -> str:
    """As Kafka's tool writes it: brokers spell types in lower case."""
    return next((one for one in known if one.lower() == name.lower()), UNKNOWN)
