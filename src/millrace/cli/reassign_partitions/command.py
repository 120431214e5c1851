"""The command `millrace reassign-partitions`."""

from collections.abc import Mapping
from pathlib import Path

import click

from millrace.admin.cluster import describe_cluster
from millrace.admin.reassignments import alter_reassignments, list_reassignments
from millrace.admin.topics import existing_topics
from millrace.cli.reassign_partitions.plan_file import format_plan, read_plan, read_topics
from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand, Target, broker_options, exactly_one
from millrace.cli.terminal.session import Session, connected
from millrace.client import TopicPartition
from millrace.cluster.placement import place_replicas
from millrace.errors import Error, KafkaError

Plan = Mapping[TopicPartition, tuple[int, ...]]


@click.command("reassign-partitions", cls=KafkaCommand)
@broker_options(broker_list=False)
@click.option("--generate", is_flag=True, help="Propose a plan for topics on some brokers; changes nothing.")
@click.option("--execute", is_flag=True, help="Begin to move partitions as a plan says.")
@click.option("--verify", is_flag=True, help="Say how far a plan is.")
@click.option("--cancel", is_flag=True, help="Stop the moves of a plan that are under way.")
@click.option("--list", "list_", is_flag=True, help="List all moves that are under way.")
@click.option("--topics-to-move-json-file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--broker-list", metavar="ID,...", help="The brokers that --generate may use.")
@click.option("--reassignment-json-file", type=click.Path(path_type=Path), metavar="FILE", help="The plan.")
def command(
    *,
    target: Target,
    generate: bool,
    execute: bool,
    verify: bool,
    cancel: bool,
    list_: bool,
    topics_to_move_json_file: Path | None,
    broker_list: str | None,
    reassignment_json_file: Path | None,
) -> None:
    """Move the replicas of partitions to other brokers."""
    action = exactly_one(generate=generate, execute=execute, verify=verify, cancel=cancel, list=list_)
    with connected(target) as session:
        if action == "list":
            _list(session)
        elif action == "generate":
            if topics_to_move_json_file is None or broker_list is None:
                raise CommandError("--generate needs --topics-to-move-json-file and --broker-list")
            _generate(session, read_topics(topics_to_move_json_file), _numbers(broker_list))
        else:
            if reassignment_json_file is None:
                raise CommandError(f"--{action} needs --reassignment-json-file")
            plan = read_plan(reassignment_json_file)
            {"execute": _execute, "verify": _verify, "cancel": _cancel}[action](session, plan)


def _numbers(text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise CommandError(f"--broker-list is a list of broker ids such as 0,1,2, not {text!r}") from None


def _current(session: Session, topics: list[str]) -> dict[TopicPartition, tuple[int, ...]]:
    found = session.run(existing_topics(session.client, topics))
    if missing := [name for name in topics if name not in found]:
        raise CommandError(f"there is no topic {missing[0]}")
    return {
        TopicPartition(topic.name, partition.index): partition.replicas
        for topic in found.values()
        for partition in topic.partitions
    }


def _generate(session: Session, topics: list[str], brokers: list[int]) -> None:
    current = _current(session, topics)
    proposed: dict[TopicPartition, tuple[int, ...]] = {}
    for name in topics:
        of_topic = sorted(partition for partition in current if partition.topic == name)
        factor = len(current[of_topic[0]])
        if factor > len(brokers):
            raise CommandError(f"{name} has {factor} replicas, but --broker-list has {len(brokers)} brokers")
        placed = place_replicas(brokers, len(of_topic), factor)
        proposed |= dict(zip(of_topic, placed, strict=True))
    click.echo(f"Current partition replica assignment\n{format_plan(current)}\n")
    click.echo(f"Proposed partition reassignment configuration\n{format_plan(proposed)}")


def _execute(session: Session, plan: Plan) -> None:
    topics = list(dict.fromkeys(partition.topic for partition in plan))
    current = {key: replicas for key, replicas in _current(session, topics).items() if key in plan}
    click.echo(f"Current partition replica assignment\n\n{format_plan(current)}\n")
    click.echo("Save this to use as the --reassignment-json-file option during rollback")
    alive = session.run(describe_cluster(session.client)).broker_ids
    if unknown := sorted({broker for replicas in plan.values() for broker in replicas} - set(alive)):
        raise CommandError(f"the plan names brokers that are not alive: {', '.join(map(str, unknown))}")
    outcomes = session.run(alter_reassignments(session.client, plan))
    _raise_failures(outcomes.failed)
    plural = "s" if len(plan) > 1 else ""
    click.echo(f"Successfully started partition reassignment{plural} for {_names(plan)}")


def _verify(session: Session, plan: Plan) -> None:
    topics = list(dict.fromkeys(partition.topic for partition in plan))
    current, moving = _current(session, topics), session.run(list_reassignments(session.client, plan))
    click.echo("Status of partition reassignment:")
    for partition, replicas in sorted(plan.items()):
        if partition in moving:
            click.echo(f"Reassignment of partition {partition} is still in progress.")
        elif current.get(partition) == replicas:
            click.echo(f"Reassignment of partition {partition} is completed.")
        else:
            now = ",".join(map(str, current.get(partition, ())))
            wanted = ",".join(map(str, replicas))
            click.echo(
                f"There is no active reassignment of partition {partition}, but replica set is {now} "
                f"rather than {wanted}."
            )


def _cancel(session: Session, plan: Plan) -> None:
    outcomes = session.run(alter_reassignments(session.client, dict.fromkeys(plan)))
    active = {
        partition: error
        for partition, error in outcomes.failed.items()
        if error.error is not Error.NO_REASSIGNMENT_IN_PROGRESS
    }
    _raise_failures(active)
    if outcomes.succeeded:
        click.echo(f"Successfully cancelled partition reassignments for: {_names(outcomes.succeeded)}")
    else:
        click.echo("None of the specified partition moves are active.")


def _list(session: Session) -> None:
    moving = session.run(list_reassignments(session.client))
    if not moving:
        click.echo("No partition reassignments found.")
        return
    click.echo("Current partition reassignments:")
    for partition, move in sorted(moving.items()):
        replicas, adding, removing = (",".join(map(str, brokers)) for brokers in move)
        text = f"{partition}: replicas: {replicas}."
        text += f" adding: {adding}." if adding else ""
        text += f" removing: {removing}." if removing else ""
        click.echo(text)


def _raise_failures(failed: Mapping[TopicPartition, KafkaError]) -> None:
    if failed:
        lines = "\n".join(f"  {partition}: {error.message}" for partition, error in sorted(failed.items()))
        raise CommandError(f"some partitions cannot be reassigned:\n{lines}")


def _names(partitions: Mapping[TopicPartition, object]) -> str:
    return ",".join(map(str, sorted(partitions)))
