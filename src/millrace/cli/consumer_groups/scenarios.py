"""Where `--reset-offsets` can move a group to: each scenario turns partitions into new offsets."""

import time
from collections.abc import Mapping
from typing import Protocol

import click

from millrace.cli.client import Client
from millrace.cli.consumer_groups.committed import Offsets
from millrace.cli.consumer_groups.moments import parse_duration
from millrace.cli.consumer_groups.partitions import name_of, offsets_at
from millrace.cli.errors import CommandError, check
from millrace.cli.offsets import EARLIEST, LATEST, UNKNOWN_OFFSET, Place

NewOffsets = dict[Place, int]


class Scenario(Protocol):
    """Decides on new offsets, given the partitions with their leaders, and what is committed now."""

    def __call__(self, client: Client, leaders: Mapping[Place, int], committed: Offsets) -> NewOffsets: ...


def to_earliest(client: Client, leaders: Mapping[Place, int], committed: Offsets) -> NewOffsets:
    """The oldest records there are."""
    return _log_offsets(client, leaders, EARLIEST)


def to_latest(client: Client, leaders: Mapping[Place, int], committed: Offsets) -> NewOffsets:
    """The next records that will come."""
    return _log_offsets(client, leaders, LATEST)


def to_current(client: Client, leaders: Mapping[Place, int], committed: Offsets) -> NewOffsets:
    """What is committed, and the end where nothing is."""
    unknown = {place: leader for place, leader in leaders.items() if place not in committed}
    known = {place: committed[place].offset for place in leaders if place in committed}
    return known | _log_offsets(client, unknown, LATEST)


def to_offset(offset: int) -> Scenario:
    """The same offset everywhere."""
    return lambda client, leaders, committed: within_range(client, leaders, dict.fromkeys(leaders, offset))


def shift_by(count: int) -> Scenario:
    """So many records forwards, or backwards if negative."""

    def decide(client: Client, leaders: Mapping[Place, int], committed: Offsets) -> NewOffsets:
        for place in leaders:
            if place not in committed:
                raise CommandError(
                    f"Cannot shift offset for partition {name_of(place)} since there is no current committed"
                    " offset"
                )
        return within_range(client, leaders, {place: committed[place].offset + count for place in leaders})

    return decide


def to_moment(timestamp_ms: int) -> Scenario:
    """The first record of that time or later, and the end where there is none."""

    def decide(client: Client, leaders: Mapping[Place, int], committed: Offsets) -> NewOffsets:
        found = _log_offsets(client, leaders, timestamp_ms)
        later = {place: leader for place, leader in leaders.items() if found[place] == UNKNOWN_OFFSET}
        for topic, index in sorted(later):
            click.echo(
                f"\nWarn: Partition {index} from topic {topic} is empty. Falling back to latest known offset."
            )
        return found | _log_offsets(client, later, LATEST)

    return decide


def by_duration(text: str) -> Scenario:
    """The records from so long ago on."""
    return to_moment(round((time.time() - parse_duration(text).total_seconds()) * 1000))


def within_range(client: Client, leaders: Mapping[Place, int], wanted: Mapping[Place, int]) -> NewOffsets:
    """The offsets, those that the log does not have replaced by its beginning or end, with a warning."""
    begins, ends = to_earliest(client, leaders, {}), to_latest(client, leaders, {})
    offsets = {}
    for place, offset in wanted.items():
        offsets[place] = min(max(offset, begins[place]), ends[place])
        if offset != offsets[place]:
            beyond = "higher than latest" if offset > ends[place] else "lower than earliest"
            click.echo(
                f"WARN New offset ({offset}) is {beyond} offset for topic partition {name_of(place)}."
                f" Value will be set to {offsets[place]}.",
                err=True,
            )
    return offsets


def _log_offsets(client: Client, leaders: Mapping[Place, int], timestamp: int) -> NewOffsets:
    offsets = {}
    for place, answer in offsets_at(client, leaders, timestamp).items():
        check(answer.error_code)
        offsets[place] = answer.offset
    return offsets
