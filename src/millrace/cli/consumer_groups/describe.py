"""`--describe`: the offsets and lag of groups, their members, or their states."""

from collections.abc import Awaitable, Callable, Iterator

import click

from millrace.admin.group_offsets import Committed, CommittedOffset, committed_offsets
from millrace.admin.groups import (
    DEAD,
    EMPTY,
    STABLE,
    GroupDescription,
    MemberDescription,
    describe_groups,
)
from millrace.admin.offsets import end_offsets
from millrace.admin.partitions import by_topic
from millrace.cli.consumer_groups.failures import print_failure
from millrace.cli.consumer_groups.table import MISSING, Column, print_table
from millrace.cli.terminal.errors import CommandError
from millrace.client import Client, TopicPartition
from millrace.errors import Error

Print = Callable[[Client, list[GroupDescription], bool], Awaitable[None]]


async def print_described(client: Client, group_ids: list[str], print_groups: Print, verbose: bool) -> bool:
    """Print groups in the order of their names; False if one does not exist."""
    described = await describe_groups(client, sorted(set(group_ids)))
    for group_id, error in described.failed.items():
        if error.error is not Error.GROUP_ID_NOT_FOUND:
            raise error
        print_failure(f"Consumer group '{group_id}' does not exist.")
    for group_id, group in described.succeeded.items():
        if not group.is_consumer_group:
            raise CommandError(f"GroupId {group_id} is not a consumer group ({group.protocol_type}).")
    await print_groups(client, list(described.succeeded.values()), verbose)
    return not described.failed


def _print_remark(group: GroupDescription) -> None:
    """Say so if a group has no members at work."""
    if group.state == EMPTY:
        click.echo(f"\nConsumer group '{group.group_id}' has no active members.", err=True)
    elif group.state not in (STABLE, DEAD):
        click.echo(f"\nWarning: Consumer group '{group.group_id}' is rebalancing.", err=True)


async def print_offsets(client: Client, groups: list[GroupDescription], verbose: bool) -> None:
    """Print a table for each group: its offset and its lag in every partition."""
    committed = (await committed_offsets(client, [group.group_id for group in groups])).all()
    ends = await end_offsets(
        client,
        {partition for group in groups for partition in group.assigned | committed[group.group_id].keys()},
    )
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
        _print_remark(group)
        rows = [
            _offset_row(
                group.group_id,
                partition,
                member,
                committed[group.group_id].get(partition),
                ends.get(partition),
                verbose,
            )
            for partition, member in _owned(group, committed[group.group_id])
        ]
        if rows:
            click.echo()
            print_table(columns, rows)


def _owned(
    group: GroupDescription, committed: Committed
) -> Iterator[tuple[TopicPartition, MemberDescription | None]]:
    """Each member's partitions, the busiest member first, then those that no member has."""
    for member in sorted(group.members, key=lambda member: -len(member.assignment)):
        for partition in sorted(member.assignment):
            yield partition, member
    for partition in sorted(committed.keys() - group.assigned):
        yield partition, None


def _offset_row(
    group_id: str,
    partition: TopicPartition,
    member: MemberDescription | None,
    committed: CommittedOffset | None,
    end: int | None,
    verbose: bool,
) -> list[object]:
    return [
        group_id,
        *partition,
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


async def print_members(client: Client, groups: list[GroupDescription], verbose: bool) -> None:
    """Print a table for each group: its members, and with `verbose` their partitions and epochs."""
    for group in groups:
        _print_remark(group)
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


def _assignment(partitions: tuple[TopicPartition, ...]) -> str | None:
    """Format partitions as `orders:0,2;payments:1`."""
    grouped = by_topic(sorted(partitions))
    return ";".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in grouped.items()) or None


async def print_states(client: Client, groups: list[GroupDescription], verbose: bool) -> None:
    """Print a table for each group: its coordinator, assignor, state and number of members."""
    columns = [
        Column("GROUP", 15, grows=True),
        Column("COORDINATOR (ID)", 25, grows=True),
        Column("ASSIGNMENT-STRATEGY", 20),
        Column("STATE", 20),
        *([Column("GROUP-EPOCH", 15), Column("TARGET-ASSIGNMENT-EPOCH", 25)] if verbose else []),
        Column("#MEMBERS"),
    ]
    for group in groups:
        _print_remark(group)
        row: list[object] = [
            group.group_id,
            f"{group.coordinator.address}  ({group.coordinator.id})",
            group.assignor or None,
            group.state,
            *([group.epoch, group.assignment_epoch] if verbose else []),
            len(group.members),
        ]
        click.echo()
        print_table(columns, [row])
