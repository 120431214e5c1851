"""`--reset-offsets`: moves groups without members to other offsets, or shows where they would go."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import click

from millrace.cli.client import Client
from millrace.cli.consumer_groups.committed import commit_offsets, committed_offsets
from millrace.cli.consumer_groups.descriptions import DEAD, EMPTY, describe_groups
from millrace.cli.consumer_groups.failures import print_failure
from millrace.cli.consumer_groups.partitions import leaders_of, name_of, parse_topic
from millrace.cli.consumer_groups.plan_file import format_plan, read_plan
from millrace.cli.consumer_groups.scenarios import NewOffsets, Scenario, within_range
from millrace.cli.consumer_groups.table import Column, print_table
from millrace.cli.errors import CommandError
from millrace.cli.offsets import Place


@dataclass(frozen=True, slots=True)
class Reset:
    """Which partitions go where; a plan file says both at once."""

    scenario: Scenario | None
    plan_file: Path | None
    topics: tuple[str, ...]
    execute: bool
    export: bool


def reset_groups(client: Client, group_ids: list[str], reset: Reset) -> bool:
    """Reset, or say what a reset would do; False when a group has to stay as it is."""
    plan_of_file = read_plan(reset.plan_file, group_ids) if reset.plan_file else None
    described = describe_groups(client, group_ids)
    plan: dict[str, NewOffsets] = {group_id: {} for group_id in group_ids}
    everything_done = True
    for group_id in group_ids:
        state = described[group_id].state if group_id in described else DEAD
        if state not in (EMPTY, DEAD):
            print_failure(
                f"Assignments can only be reset if the group '{group_id}' is inactive, but the current state"
                f" is {state}."
            )
            everything_done = False
        elif plan_of_file is not None and group_id not in plan_of_file:
            print_failure(f"No reset plan for group {group_id} found")
            everything_done = False
        elif plan_of_file is not None:
            plan[group_id] = _planned(client, plan_of_file[group_id])
        else:
            plan[group_id] = _decided(client, group_id, reset)
    if reset.execute:
        for group_id, offsets in plan.items():
            if offsets:
                commit_offsets(client, group_id, offsets)
    _print_plan(plan, group_ids, export=reset.export)
    return everything_done


def _planned(client: Client, offsets: NewOffsets) -> NewOffsets:
    return within_range(client, _existing(client, offsets), offsets)


def _decided(client: Client, group_id: str, reset: Reset) -> NewOffsets:
    assert reset.scenario is not None
    committed = committed_offsets(client, [group_id])[group_id]
    places = _named(client, reset.topics) if reset.topics else list(committed)
    return reset.scenario(client, _existing(client, places), committed)


def _named(client: Client, topics: tuple[str, ...]) -> list[Place]:
    parsed = [parse_topic(text) for text in topics]
    existing = leaders_of(client, {topic for topic, indexes in parsed if indexes is None})
    places: list[Place] = []
    for topic, indexes in parsed:
        named = [place for place in existing if place[0] == topic] if indexes is None else []
        if indexes is None and not named:
            raise CommandError(f"topic {topic} does not exist; `millrace topics --list` shows what there is")
        places += named if indexes is None else [(topic, index) for index in indexes]
    return places


def _existing(client: Client, places: Iterable[Place]) -> dict[Place, int]:
    """The partitions with their leaders; one that cannot be asked is an error."""
    wanted = sorted(set(places))
    leaders = leaders_of(client, {topic for topic, _ in wanted})
    missing = [name_of(place) for place in wanted if place not in leaders]
    if missing:
        raise CommandError(f'The partitions "{",".join(missing)}" do not exist')
    leaderless = [name_of(place) for place in wanted if leaders[place] < 0]
    if leaderless:
        raise CommandError(f'The partitions "{",".join(leaderless)}" have no leader')
    return {place: leaders[place] for place in wanted}


def _print_plan(plan: dict[str, NewOffsets], group_ids: list[str], *, export: bool) -> None:
    if export:
        click.echo(format_plan(plan, with_groups=len(group_ids) != 1))
        return
    click.echo()
    print_table(
        [
            # Kafka's tool makes room for the groups that stay as they are, too.
            Column("GROUP", max([15, *map(len, plan)])),
            Column("TOPIC", 15, grows=True),
            Column("PARTITION", 10),
            Column("NEW-OFFSET"),
        ],
        [
            (group_id, *place, offset)
            for group_id, offsets in plan.items()
            for place, offset in sorted(offsets.items())
        ],
    )
