"""The commands of `millrace transactions`."""

import time
from typing import Any

import click

from millrace import __version__
from millrace.admin.producers import describe_producers
from millrace.admin.topics import existing_topics, list_topics
from millrace.admin.transactions import (
    OpenTransaction,
    abort_in_partition,
    describe_transactions,
    fence_producer,
    find_hanging_transactions,
    find_open_transaction,
    list_transactions,
)
from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand, Target, broker_options
from millrace.cli.terminal.session import connected
from millrace.cli.transactions.table import print_table
from millrace.client import Client, TopicPartition
from millrace.errors import Error

MS_PER_MINUTE = 60_000


class TransactionsGroup(click.Group):
    """The commands, each with the options of Kafka's tools."""

    command_class = KafkaCommand


@click.group(
    "transactions",
    cls=TransactionsGroup,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Brokers are named before the command: `millrace transactions --bootstrap-server HOST:PORT list`.",
)
@broker_options()
@click.version_option(__version__, "-v", "--version", message="millrace %(version)s")
def command(*, target: Target) -> None:
    """List, describe and abort transactions."""
    click.get_current_context().obj = target


@command.command("list")
@click.option(
    "--duration-filter",
    type=int,
    default=-1,
    metavar="MS",
    help="Only transactions open for longer than this.",
)
@click.option("--transactional-id-pattern", metavar="REGEX", help="Only ids that match.")
@click.pass_obj
def list_command(target: Target, /, *, duration_filter: int, transactional_id_pattern: str | None) -> None:
    """List transactions."""
    longer_than_ms = None if duration_filter < 0 else duration_filter
    with connected(target) as session:
        listed = session.run(
            list_transactions(
                session.client, longer_than_ms=longer_than_ms, id_pattern=transactional_id_pattern
            )
        )
    print_table(("TransactionalId", "Coordinator", "ProducerId", "TransactionState"), listed)


@command.command("describe")
@click.option("--transactional-id", required=True, metavar="ID", help="The transactional id.")
@click.pass_obj
def describe_command(target: Target, /, *, transactional_id: str) -> None:
    """Describe the state of a transactional id."""
    with connected(target) as session:
        described = session.run(describe_transactions(session.client, [transactional_id]))
    error = described.failed.get(transactional_id)
    if error is not None and error.error is Error.TRANSACTIONAL_ID_NOT_FOUND:
        raise CommandError(
            f"there is no transactional id {transactional_id}; `millrace transactions list` shows them all"
        )
    found = described[transactional_id]
    duration_ms = None if found.started_ms is None else round(time.time() * 1000) - found.started_ms
    print_table(
        (
            "CoordinatorId",
            "TransactionalId",
            "ProducerId",
            "ProducerEpoch",
            "TransactionState",
            "TransactionTimeoutMs",
            "CurrentTransactionStartTimeMs",
            "TransactionDurationMs",
            "TopicPartitions",
        ),
        [
            (
                found.coordinator_id,
                transactional_id,
                found.producer_id,
                found.producer_epoch,
                found.state,
                found.timeout_ms,
                found.started_ms,
                duration_ms,
                ",".join(sorted(map(str, found.partitions))),
            )
        ],
    )


@command.command("describe-producers")
@click.option("--topic", required=True, metavar="NAME", help="The topic.")
@click.option("--partition", required=True, type=int, metavar="N", help="The partition.")
@click.option("--broker-id", type=int, metavar="ID", help="Query this replica instead of the leader.")
@click.pass_obj
def describe_producers_command(
    target: Target, /, *, topic: str, partition: int, broker_id: int | None
) -> None:
    """Describe the producers that write to a partition."""
    key = TopicPartition(topic, partition)
    with connected(target) as session:
        producers = session.run(describe_producers(session.client, [key], broker_id=broker_id))[key]
    print_table(
        (
            "ProducerId",
            "ProducerEpoch",
            "LatestCoordinatorEpoch",
            "LastSequence",
            "LastTimestamp",
            "CurrentTransactionStartOffset",
        ),
        [
            (
                producer.producer_id,
                producer.producer_epoch,
                producer.coordinator_epoch,
                producer.last_sequence,
                producer.last_timestamp,
                producer.transaction_start,
            )
            for producer in producers
        ],
    )


@command.command("abort")
@click.option("--topic", required=True, metavar="NAME", help="The topic.")
@click.option("--partition", required=True, type=int, metavar="N", help="The partition.")
@click.option("--start-offset", type=int, metavar="N", help="Offset of the transaction's first record.")
@click.option("--producer-id", type=int, metavar="ID", help="Instead, for brokers before 3.0: the producer,")
@click.option("--producer-epoch", type=int, metavar="N", help="its epoch,")
@click.option("--coordinator-epoch", type=int, metavar="N", help="and its coordinator's epoch.")
@click.pass_obj
def abort_command(
    target: Target,
    /,
    *,
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
) -> None:
    """Abort a hanging transaction in one partition."""
    key = TopicPartition(topic, partition)
    with connected(target) as session:
        if start_offset is not None:
            found = session.run(find_open_transaction(session.client, key, start_offset))
            producer = found.producer_id, found.producer_epoch, found.coordinator_epoch
        elif producer_id is None or producer_epoch is None or coordinator_epoch is None:
            raise CommandError(
                "name the transaction by --start-offset, or, for brokers before 3.0, by --producer-id,"
                " --producer-epoch and --coordinator-epoch"
            )
        else:
            producer = producer_id, producer_epoch, coordinator_epoch
        session.run(abort_in_partition(session.client, key, *producer))


@command.command("find-hanging")
@click.option("--broker-id", type=int, metavar="ID", help="Search the replicas of this broker.")
@click.option("--topic", metavar="NAME", help="Search a topic.")
@click.option("--partition", type=int, metavar="N", help="Search only this partition of the topic.")
@click.option(
    "--max-transaction-timeout",
    type=int,
    default=15,
    show_default=True,
    metavar="MINUTES",
    help="Only transactions that have been silent for longer.",
)
@click.pass_obj
def find_hanging_command(target: Target, /, *, max_transaction_timeout: int, **scope: Any) -> None:
    """Find transactions that no coordinator will end."""
    if scope["topic"] is None and scope["broker_id"] is None:
        raise CommandError("find-hanging needs --topic NAME or --broker-id ID")
    if scope["partition"] is not None and scope["topic"] is None:
        raise CommandError("--partition needs --topic")
    with connected(target) as session:
        hanging = session.run(_find_hanging(session.client, max_transaction_timeout, **scope))
    print_table(
        (
            "Topic",
            "Partition",
            "ProducerId",
            "ProducerEpoch",
            "CoordinatorEpoch",
            "StartOffset",
            "LastTimestamp",
            "Duration(min)",
        ),
        [
            (
                *found.partition,
                found.producer.producer_id,
                found.producer.producer_epoch,
                found.producer.coordinator_epoch,
                found.producer.transaction_start,
                found.producer.last_timestamp,
                found.silent_ms // MS_PER_MINUTE,
            )
            for found in hanging
        ],
    )


async def _find_hanging(
    client: Client, max_timeout_minutes: int, broker_id: int | None, topic: str | None, partition: int | None
) -> list[OpenTransaction]:
    topics = await (list_topics(client) if topic is None else existing_topics(client, [topic]))
    partitions = [
        TopicPartition(name, found.index)
        for name, described in topics.items()
        for found in described.partitions
        if (partition is None or found.index == partition)
        and (found.leader is not None if broker_id is None else broker_id in found.replicas)
    ]
    return await find_hanging_transactions(
        client, partitions, max_timeout_minutes * MS_PER_MINUTE, broker_id=broker_id
    )


@command.command("forceTerminateTransaction")
@click.option(
    "--transactionalId", "transactional_id", required=True, metavar="ID", help="The transactional id."
)
@click.pass_obj
def force_terminate_command(target: Target, /, *, transactional_id: str) -> None:
    """Abort the transaction of a transactional id and fence its producer."""
    with connected(target) as session:
        session.run(fence_producer(session.client, transactional_id))
