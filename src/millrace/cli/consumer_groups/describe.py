"""`--describe`: the offsets and lag of groups, their members, or their states."""

from collections.abc import Callable, Iterator

import click

from millrace.cli.client import Client
from millrace.cli.consumer_groups.committed import Committed, Offsets, committed_offsets
from millrace.cli.consumer_groups.descriptions import (
    DEAD,
    EMPTY,
    STABLE,
    GroupDescription,
    MemberDescription,
    describe_groups,
)
from millrace.cli.consumer_groups.failures import print_failure
from millrace.cli.consumer_groups.partitions import leaders_of, offsets_at
from millrace.cli.consumer_groups.table import MISSING, Column, print_table
from millrace.cli.offsets import LATEST, Place
from millrace.errors import Error

Print = Callable[[Client, list[GroupDescription], bool], None]


def print_described(client: Client, group_ids: list[str], print_groups: Print, verbose: bool) -> bool:
    """Print groups in the order of their names; False when one does not exist."""
    found = describe_groups(client, sorted(set(group_ids)))
    missing = [group_id for group_id in sorted(set(group_ids)) if group_id not in found]
    for group_id in missing:
        print_failure(f"Consumer group '{group_id}' does not exist.")
    print_groups(client, list(found.values()), verbose)
    return not missing


def _tell_state(group: GroupDescription) -> None:
    """A remark where the reader would expect members at work."""
    if group.state == EMPTY:
        click.echo(f"\nConsumer group '{group.group_id}' has no active members.", err=True)
    elif group.state not in (STABLE, DEAD):
        click.echo(f"\nWarning: Consumer group '{group.group_id}' is rebalancing.", err=True)


def print_offsets(client: Client, groups: list[GroupDescription], verbose: bool) -> None:
    """A table for each group: where it stands in every partition, and how much it still has to read."""
    committed = committed_offsets(client, [group.group_id for group in groups])
    places = {place for group in groups for place in group.assigned | committed[group.group_id].keys()}
    ends = _log_ends(client, places)
    columns = [
        Column("GROUP", 15, grows=True),
        Column("TOPIC", 15, grows=True),
        Column("PARTITION", 10),
        *([Column("LEADER-EPOCH", 15)] if verbose else []),
        Column("CURRENT-OFFSET", 15),
        Column("LOG-END-OFFSET", 15),
        Column("LAG", 15),
        Column("CONSUMER-ID", 15, grows=True),
        Column("HOST", 15, grows=True),
        Column("CLIENT-ID"),
    ]
    for group in groups:
        _tell_state(group)
        rows = [
            _offset_row(group.group_id, place, member, committed[group.group_id].get(place), ends, verbose)
            for place, member in _owned(group, committed[group.group_id])
        ]
        if rows:
            click.echo()
            print_table(columns, rows)


def _owned(group: GroupDescription, committed: Offsets) -> Iterator[tuple[Place, MemberDescription | None]]:
    """Each member's partitions, the busiest member first, then those that nobody has."""
    for member in sorted(group.members, key=lambda member: -len(member.assignment)):
        for place in sorted(member.assignment):
            yield place, member
    for place in sorted(committed.keys() - group.assigned):
        yield place, None


def _offset_row(
    group_id: str,
    place: Place,
    member: MemberDescription | None,
    committed: Committed | None,
    ends: dict[Place, int],
    verbose: bool,
) -> list[object]:
    end = ends.get(place)
    return [
        group_id,
        *place,
        *([committed and committed.leader_epoch] if verbose else []),
        committed and committed.offset,
        end,
        None if committed is None or end is None else end - committed.offset,
        *(
            (MISSING, MISSING, MISSING)
            if member is None
            else (member.member_id, member.host, member.client_id)
        ),
    ]


def _log_ends(client: Client, places: set[Place]) -> dict[Place, int]:
    """The ends of the partitions that still exist and have a leader."""
    leaders = leaders_of(client, {topic for topic, _ in places})
    wanted = {place: leaders[place] for place in places if leaders.get(place, -1) >= 0}
    answers = offsets_at(client, wanted, LATEST)
    return {place: answer.offset for place, answer in answers.items() if answer.error_code == Error.NONE}


def print_members(client: Client, groups: list[GroupDescription], verbose: bool) -> None:
    """A table for each group: its members, and with `verbose` their partitions and epochs."""
    for group in groups:
        _tell_state(group)
        has_instances = any(member.instance_id for member in group.members)
        is_migrating = {True, False} <= {member.is_upgraded for member in group.members}
        columns = [
            Column("GROUP", 15, grows=True),
            Column("CONSUMER-ID", 15, grows=True),
            *([Column("GROUP-INSTANCE-ID", 17, grows=True)] if has_instances else []),
            Column("HOST", 15, grows=True),
            Column("CLIENT-ID", 15, grows=True),
            Column("#PARTITIONS", 15),
            *(_assignment_columns(is_migrating) if verbose else [Column("")]),
        ]
        click.echo()
        print_table(
            columns,
            [
                [
                    group.group_id,
                    member.member_id,
                    *([member.instance_id or ""] if has_instances else []),
                    member.host,
                    member.client_id,
                    len(member.assignment),
                    *(_assignment_cells(group, member, is_migrating) if verbose else [""]),
                ]
                for member in group.members
            ],
        )


def _assignment_columns(is_migrating: bool) -> list[Column]:
    return [
        Column("CURRENT-EPOCH", 15),
        Column("CURRENT-ASSIGNMENT", 20, grows=True),
        Column("TARGET-EPOCH", 15),
        Column("TARGET-ASSIGNMENT", 20, grows=True),
        *([Column("UPGRADED")] if is_migrating else []),
    ]


def _assignment_cells(group: GroupDescription, member: MemberDescription, is_migrating: bool) -> list[object]:
    upgraded = None if member.is_upgraded is None else str(member.is_upgraded).lower()
    return [
        member.epoch,
        _assignment(member.assignment),
        group.assignment_epoch,
        _assignment(member.target or ()),
        *([upgraded] if is_migrating else []),
    ]


def _assignment(places: tuple[Place, ...]) -> str | None:
    """`orders:0,2;payments:1`."""
    by_topic: dict[str, list[str]] = {}
    for topic, index in sorted(places):
        by_topic.setdefault(topic, []).append(str(index))
    return ";".join(f"{topic}:{','.join(indexes)}" for topic, indexes in by_topic.items()) or None


def print_states(client: Client, groups: list[GroupDescription], verbose: bool) -> None:
    """A table for each group: its coordinator, assignor, state and number of members."""
    columns = [
        Column("GROUP", 15, grows=True),
        Column("COORDINATOR (ID)", 25, grows=True),
        Column("ASSIGNMENT-STRATEGY", 20),
        Column("STATE", 20),
        *([Column("GROUP-EPOCH", 15), Column("TARGET-ASSIGNMENT-EPOCH", 25)] if verbose else []),
        Column("#MEMBERS"),
    ]
    for group in groups:
        _tell_state(group)
        where = group.coordinator
        row: list[object] = [
            group.group_id,
            f"{where.host}:{where.port}  ({where.node_id})",
            group.assignor or None,
            group.state,
            *([group.epoch, group.assignment_epoch] if verbose else []),
            len(group.members),
        ]
        click.echo()
        print_table(columns, [row])
