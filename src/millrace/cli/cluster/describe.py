"""`millrace cluster describe`: the brokers and the health of their partitions."""

from collections import Counter

import click

from millrace.admin.cluster import describe_cluster
from millrace.admin.reassignments import list_reassignments
from millrace.admin.topics import TopicDescription, list_topics
from millrace.cli.terminal.options import Target
from millrace.cli.terminal.session import connected
from millrace.cli.terminal.tables import print_terminal_table


def print_cluster(target: Target) -> None:
    with connected(target) as session:
        cluster = session.run(describe_cluster(session.client))
        topics = session.run(list_topics(session.client))
        moving = session.run(list_reassignments(session.client))
    partitions = [partition for topic in topics.values() for partition in topic.partitions]
    leaders = Counter(partition.leader for partition in partitions)
    replicas = Counter(broker for partition in partitions for broker in partition.replicas)
    click.echo(f"cluster {cluster.cluster_id}: {len(topics)} topics, {len(partitions)} partitions")
    print_terminal_table(
        ("BROKER", "ADDRESS", "RACK", "LEADERS", "REPLICAS", "ROLE"),
        [
            (
                str(broker.id),
                str(broker.address),
                broker.rack or "-",
                str(leaders[broker.id]),
                str(replicas[broker.id]),
                "controller" if broker.id == cluster.controller_id else "",
            )
            for broker in cluster.brokers
        ],
    )
    alive = set(cluster.broker_ids)
    if gone := sorted(set(replicas) - alive):
        click.echo(click.style(f"not alive: broker {', '.join(map(str, gone))}", fg="red"))
    _print_lacking(topics)
    if moving:
        click.echo(f"moving: {', '.join(map(str, sorted(moving)))}")


def _print_lacking(topics: dict[str, TopicDescription]) -> None:
    lacking = [
        f"{topic.name}-{partition.index}"
        for topic in topics.values()
        for partition in topic.partitions
        if len(partition.isr) < len(partition.replicas)
    ]
    offline = [
        f"{topic.name}-{partition.index}"
        for topic in topics.values()
        for partition in topic.partitions
        if partition.leader is None
    ]
    if lacking:
        click.echo(click.style(f"not all replicas in sync: {_some(lacking)}", fg="yellow"))
    if offline:
        click.echo(click.style(f"no leader: {_some(offline)}", fg="red"))
    if not lacking and not offline:
        click.echo("every replica is in sync")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"{', '.join(names[:10])}{more} ({len(names)})"
