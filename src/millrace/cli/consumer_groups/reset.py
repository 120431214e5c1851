"""`--reset-offsets`: moves groups without members to other offsets, or shows the new offsets."""

from dataclasses import dataclass
from pathlib import Path

import click

from millrace.admin.resets import (
    GroupActive,
    NewOffsets,
    ResetPlan,
    Target,
    apply_reset,
    plan_reset,
    to_offsets,
)
from millrace.cli.consumer_groups.failures import print_failure
from millrace.cli.consumer_groups.partitions import parse_partitions
from millrace.cli.consumer_groups.plan_file import format_plan, read_plan
from millrace.cli.consumer_groups.table import Column, print_table
from millrace.cli.terminal.errors import CommandError
from millrace.client import Client


@dataclass(frozen=True, slots=True)
class Reset:
    """The options of a reset: a target for some topics or for all, or a plan file with both."""

    target: Target | None
    plan_file: Path | None
    topics: tuple[str, ...]
    execute: bool
    export: bool


async def reset_groups(client: Client, group_ids: list[str], reset: Reset) -> bool:
    """Reset groups, or show what a reset would do; False if a group cannot be reset."""
    plan_of_file = read_plan(reset.plan_file, group_ids) if reset.plan_file else None
    plans: dict[str, ResetPlan] = {}
    for group_id in group_ids:
        if plan_of_file is not None and group_id not in plan_of_file:
            print_failure(f"No reset plan for group {group_id} found")
            continue
        try:
            if plan_of_file is not None:
                offsets = plan_of_file[group_id]
                plans[group_id] = await plan_reset(client, group_id, to_offsets(offsets), offsets)
            else:
                plans[group_id] = await _plan(client, group_id, reset)
        except GroupActive as error:
            print_failure(error.message)
            continue
        _print_warnings(plans[group_id])
    if reset.execute:
        for group_id, plan in plans.items():
            await apply_reset(client, group_id, plan)
    new_offsets = {group_id: plans[group_id].offsets if group_id in plans else {} for group_id in group_ids}
    _print_offsets(new_offsets, group_ids, export=reset.export)
    return len(plans) == len(group_ids)


async def _plan(client: Client, group_id: str, reset: Reset) -> ResetPlan:
    assert reset.target is not None
    if not reset.topics:
        return await plan_reset(client, group_id, reset.target)
    partitions, missing = await parse_partitions(client, reset.topics)
    if missing:
        raise CommandError(f"topic {missing[0]} does not exist; `millrace topics --list` shows the topics")
    return await plan_reset(client, group_id, reset.target, partitions)


def _print_warnings(plan: ResetPlan) -> None:
    for topic, index in sorted(plan.without_records):
        click.echo(
            f"\nWarn: Partition {index} from topic {topic} is empty. Falling back to latest known offset."
        )
    for partition, offset in plan.out_of_range.items():
        beyond = "higher than latest" if offset > plan.offsets[partition] else "lower than earliest"
        click.echo(
            f"WARN New offset ({offset}) is {beyond} offset for topic partition {partition}."
            f" Value will be set to {plan.offsets[partition]}.",
            err=True,
        )


def _print_offsets(plans: dict[str, NewOffsets], group_ids: list[str], *, export: bool) -> None:
    if export:
        click.echo(format_plan(plans, with_groups=len(group_ids) != 1))
        return
    click.echo()
    print_table(
        [
            # Kafka's tool makes room for the groups that are not reset, too.
            Column("GROUP", max([15, *map(len, plans)])),
            Column("TOPIC", 15, grows=True),
            Column("PARTITION", 10),
            Column("NEW-OFFSET"),
        ],
        [
            (group_id, *partition, offset)
            for group_id, offsets in plans.items()
            for partition, offset in sorted(offsets.items())
        ],
    )
