"""The options of `millrace consumer-groups`, and which of them go together."""

import time
from pathlib import Path
from typing import Any

import click

from millrace.admin import resets
from millrace.admin.groups import list_groups
from millrace.cli.consumer_groups.delete import delete_groups, delete_topic_offsets
from millrace.cli.consumer_groups.describe import print_described, print_members, print_offsets, print_states
from millrace.cli.consumer_groups.listing import print_groups
from millrace.cli.consumer_groups.moments import parse_duration, parse_moment
from millrace.cli.consumer_groups.reset import Reset, reset_groups
from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand, Target, broker_options, exactly_one
from millrace.cli.terminal.session import connected
from millrace.client import Client

WITHOUT_EXECUTE = (
    "WARN: No action will be performed as the --execute option is missing. Add it to reset the offsets, or"
    " --dry-run to see the new ones without this warning."
)

SCENARIOS = (
    "to_earliest",
    "to_latest",
    "to_current",
    "to_offset",
    "to_datetime",
    "by_duration",
    "shift_by",
    "from_file",
)

# option -> the actions it goes with
_BELONGS_TO = {
    "group": ("describe", "delete", "delete_offsets", "reset_offsets"),
    "all_groups": ("describe", "delete", "reset_offsets"),
    "topic": ("delete_offsets", "reset_offsets"),
    "all_topics": ("reset_offsets",),
    "offsets": ("describe",),
    "members": ("describe",),
    "verbose": ("describe",),
    "state": ("describe", "list"),
    "type_": ("list",),
    "dry_run": ("reset_offsets",),
    "execute": ("reset_offsets",),
    "export": ("reset_offsets",),
    **dict.fromkeys(SCENARIOS, ("reset_offsets",)),
}


@click.command("consumer-groups", cls=KafkaCommand)
@broker_options()
@click.option("--list", "list_", is_flag=True, help="List the groups.")
@click.option("--describe", is_flag=True, help="Show the offsets, members or state of groups.")
@click.option("--delete", is_flag=True, help="Delete groups without members.")
@click.option("--delete-offsets", is_flag=True, help="Delete a group's offsets of some topics.")
@click.option("--reset-offsets", is_flag=True, help="Move groups without members to other offsets.")
@click.option("--validate-regex", metavar="REGEX", help="Check whether brokers accept an expression (RE2).")
@click.option("--group", multiple=True, metavar="NAME", help="A group; may be repeated.")
@click.option("--all-groups", is_flag=True, help="All groups.")
@click.option("--offsets", is_flag=True, help="Describe offsets and lag.  [default]")
@click.option("--members", is_flag=True, help="Describe the members.")
@click.option(
    "--state",
    is_flag=False,
    flag_value="",
    metavar="[STATE,...]",
    help="Describe the state; with --list, show it, and only groups in the given states.",
)
@click.option(
    "--type",
    "type_",
    is_flag=False,
    flag_value="",
    metavar="[TYPE,...]",
    help="With --list: show the type, classic or consumer, and only groups of the given types.",
)
@click.option("--verbose", is_flag=True, help="Describe more: leader epochs, assignments, group epochs.")
@click.option(
    "--topic",
    multiple=True,
    metavar="NAME[:N,N,...]",
    help="A topic, or some of its partitions; may be repeated.",
)
@click.option("--all-topics", is_flag=True, help="Every partition with a committed offset of the group.")
@click.option("--to-earliest", is_flag=True, help="Reset to the oldest records.")
@click.option("--to-latest", is_flag=True, help="Reset to the end.")
@click.option("--to-current", is_flag=True, help="Reset to the committed offsets, e.g. to --export them.")
@click.option("--to-offset", type=int, metavar="N", help="Reset to an offset.")
@click.option(
    "--to-datetime",
    metavar="YYYY-MM-DDThh:mm:ss.sss",
    help="Reset to the first record at or after a time (UTC).",
)
@click.option(
    "--by-duration", metavar="PnDTnHnMnS", help="Reset to the first record of this last period, e.g. PT2H."
)
@click.option("--shift-by", type=int, metavar="N", help="Reset forwards by N records, or backwards by -N.")
@click.option(
    "--from-file", type=click.Path(path_type=Path), metavar="CSV", help="Reset to the offsets of an --export."
)
@click.option("--dry-run", is_flag=True, help="Only show the new offsets.  [default]")
@click.option("--execute", is_flag=True, help="Set the new offsets.")
@click.option("--export", is_flag=True, help="Print the new offsets as CSV.")
@click.option(
    "--timeout",
    "timeout_ms",
    type=click.IntRange(1),
    default=30_000,
    show_default=True,
    metavar="MS",
    help="Time to wait for a response.",
)
def command(
    *,
    target: Target,
    list_: bool,
    describe: bool,
    delete: bool,
    delete_offsets: bool,
    reset_offsets: bool,
    validate_regex: str | None,
    timeout_ms: int,
    **options: Any,
) -> int:
    """List, describe, rewind and delete consumer groups."""
    action = exactly_one(
        list=list_,
        describe=describe,
        delete=delete,
        delete_offsets=delete_offsets,
        reset_offsets=reset_offsets,
        validate_regex=validate_regex is not None,
    )
    _check_combination(action, options)
    if validate_regex is not None:
        _validate_regex(validate_regex)
        return 0
    with connected(target, timeout_seconds=timeout_ms / 1000) as session:
        succeeded = session.run(_ACTIONS[action](session.client, options))
    return 0 if succeeded else 1


def _check_combination(action: str, options: dict[str, Any]) -> None:
    for option, actions in _BELONGS_TO.items():
        if action not in actions and _is_given(options[option]):
            raise CommandError(f"{_flag(option)} cannot be used with {_flag(action)}")
    if action in _BELONGS_TO["all_groups"] and bool(options["group"]) == options["all_groups"]:
        raise CommandError(f"{_flag(action)} needs either --group NAME or --all-groups")
    if action == "delete_offsets" and (len(options["group"]) != 1 or not options["topic"]):
        raise CommandError("--delete-offsets needs one --group NAME, and --topic NAME")
    if action == "describe":
        if options["state"]:
            raise CommandError("--describe does not take a value for --state")
        if sum([options["members"], options["offsets"], options["state"] is not None]) > 1:
            raise CommandError("--describe takes at most one of --members, --offsets and --state")
    if action == "reset_offsets":
        _check_reset(options)


def _check_reset(options: dict[str, Any]) -> None:
    if options["dry_run"] and options["execute"]:
        raise CommandError("--reset-offsets takes only one of --dry-run and --execute")
    given = [name for name in SCENARIOS if _is_given(options[name])]
    if len(given) != 1:
        raise CommandError(f"--reset-offsets needs exactly one of {', '.join(map(_flag, SCENARIOS))}")
    if options["topic"] and options["all_topics"]:
        raise CommandError("give either --topic or --all-topics")
    if not options["topic"] and not options["all_topics"] and options["from_file"] is None:
        raise CommandError("One of the reset scopes should be defined: --all-topics, --topic.")
    if not options["dry_run"] and not options["execute"]:
        click.echo(WITHOUT_EXECUTE, err=True)


def _is_given(value: object) -> bool:
    """Whether an option was given; zero and empty text are values too."""
    return value is not None and value is not False and value != ()


def _flag(name: str) -> str:
    return f"--{name.rstrip('_').replace('_', '-')}"


def _validate_regex(regex: str) -> None:
    import re2

    syntax = re2.Options()
    syntax.log_errors = False
    try:
        re2.compile(regex, options=syntax)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        click.echo(f"The regular expression `{regex}` is invalid: {reason}.")
    else:
        click.echo(f"The regular expression `{regex}` is valid.")


async def _list(client: Client, options: dict[str, Any]) -> bool:
    await print_groups(client, options["state"], options["type_"])
    return True


async def _describe(client: Client, options: dict[str, Any]) -> bool:
    print_them = print_offsets
    if options["members"]:
        print_them = print_members
    elif options["state"] is not None:
        print_them = print_states
    group_ids = await _group_ids(client, options)
    return await print_described(client, group_ids, print_them, options["verbose"])


async def _delete(client: Client, options: dict[str, Any]) -> bool:
    return await delete_groups(client, await _group_ids(client, options))


async def _delete_offsets(client: Client, options: dict[str, Any]) -> bool:
    return await delete_topic_offsets(client, options["group"][0], options["topic"])


async def _reset_offsets(client: Client, options: dict[str, Any]) -> bool:
    reset = Reset(
        target=_reset_target(options),
        plan_file=options["from_file"],
        topics=() if options["all_topics"] else options["topic"],
        execute=options["execute"],
        export=options["export"],
    )
    return await reset_groups(client, await _group_ids(client, options), reset)


_ACTIONS = {
    "list": _list,
    "describe": _describe,
    "delete": _delete,
    "delete_offsets": _delete_offsets,
    "reset_offsets": _reset_offsets,
}


async def _group_ids(client: Client, options: dict[str, Any]) -> list[str]:
    if options["all_groups"]:
        return [group.group_id for group in await list_groups(client) if group.is_consumer_group]
    return list(dict.fromkeys(options["group"]))


def _reset_target(options: dict[str, Any]) -> resets.Target | None:
    """The target of a reset; None for a plan file."""
    if options["to_earliest"]:
        return resets.to_earliest
    if options["to_latest"]:
        return resets.to_latest
    if options["to_current"]:
        return resets.to_current
    if options["to_offset"] is not None:
        return resets.to_offset(options["to_offset"])
    if options["shift_by"] is not None:
        return resets.shift_by(options["shift_by"])
    if options["to_datetime"] is not None:
        return resets.to_time(parse_moment(options["to_datetime"]))
    if options["by_duration"] is not None:
        ago_seconds = parse_duration(options["by_duration"]).total_seconds()
        return resets.to_time(round((time.time() - ago_seconds) * 1000))
    return None
