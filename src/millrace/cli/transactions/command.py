"""The commands of `millrace transactions`."""

import time
from typing import Any

import click

from millrace import __version__
from millrace.cli.client import connected
from millrace.cli.errors import CommandError
from millrace.cli.options import KafkaCommand, Target, broker_options
from millrace.cli.transactions.ending import abort_marker, force_terminate, marker_for, write_marker
from millrace.cli.transactions.hanging import NO_TRANSACTION, find_hanging, partitions_to_search
from millrace.cli.transactions.producers import describe_producers, leader_of
from millrace.cli.transactions.states import describe_transactions, list_transactions
from millrace.cli.transactions.table import print_table
from millrace.wire.messages.list_transactions import ListTransactionsRequest

MS_PER_MINUTE = 60_000
NOT_STARTED = -1


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
@click.option("--duration-filter", type=int, default=-1, metavar="MS", help="Only those open for longer.")
@click.option("--transactional-id-pattern", metavar="REGEX", help="Only ids that match.")
@click.pass_obj
def list_command(target: Target, /, *, duration_filter: int, transactional_id_pattern: str | None) -> None:
    """List transactions."""
    request = ListTransactionsRequest(
        duration_filter=duration_filter, transactional_id_pattern=transactional_id_pattern
    )
    with connected(target) as client:
        listed = list_transactions(client, request)
    print_table(
        ("TransactionalId", "Coordinator", "ProducerId", "TransactionState"),
        [
            (found.transactional_id, coordinator_id, found.producer_id, found.transaction_state)
            for coordinator_id, found in listed
        ],
    )


@command.command("describe")
@click.option("--transactional-id", required=True, metavar="ID", help="The transactional id.")
@click.pass_obj
def describe_command(target: Target, /, *, transactional_id: str) -> None:
    """Describe the state of a transactional id."""
    with connected(target) as client:
        described = describe_transactions(client, [transactional_id])
    if transactional_id not in described:
        raise CommandError(
            f"there is no transactional id {transactional_id}; `millrace transactions list` shows them all"
        )
    coordinator_id, state = described[transactional_id]
    started_ms = state.transaction_start_time_ms
    is_started = started_ms != NOT_STARTED
    places = [f"{topic.topic}-{index}" for topic in state.topics for index in topic.partitions]
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
                coordinator_id,
                transactional_id,
                state.producer_id,
                state.producer_epoch,
                state.transaction_state,
                state.transaction_timeout_ms,
                started_ms if is_started else None,
                round(time.time() * 1000) - started_ms if is_started else None,
                ",".join(sorted(places)),
            )
        ],
    )


@command.command("describe-producers")
@click.option("--topic", required=True, metavar="NAME", help="The topic.")
@click.option("--partition", required=True, type=int, metavar="N", help="The partition.")
@click.option("--broker-id", type=int, metavar="ID", help="Ask this replica instead of the leader.")
@click.pass_obj
def describe_producers_command(
    target: Target, /, *, topic: str, partition: int, broker_id: int | None
) -> None:
    """Describe the producers that write to a partition."""
    place = (topic, partition)
    with connected(target) as client:
        node_id = leader_of(client, place) if broker_id is None else broker_id
        producers = describe_producers(client, {place: node_id})[place]
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
                None
                if producer.current_txn_start_offset == NO_TRANSACTION
                else producer.current_txn_start_offset,
            )
            for producer in producers
        ],
    )


@command.command("abort")
@click.option("--topic", required=True, metavar="NAME", help="The topic.")
@click.option("--partition", required=True, type=int, metavar="N", help="The partition.")
@click.option("--start-offset", type=int, metavar="N", help="Where the transaction begins in it.")
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
    place = (topic, partition)
    with connected(target) as client:
        if start_offset is not None:
            marker = marker_for(client, place, start_offset)
        elif producer_id is None or producer_epoch is None or coordinator_epoch is None:
            raise CommandError(
                "name the transaction by --start-offset, or, for brokers before 3.0, by --producer-id,"
                " --producer-epoch and --coordinator-epoch"
            )
        else:
            marker = abort_marker(place, producer_id, producer_epoch, coordinator_epoch)
        write_marker(client, place, marker)


@command.command("find-hanging")
@click.option("--broker-id", type=int, metavar="ID", help="Search what this broker holds.")
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
    """Find transactions that nobody is going to end."""
    if scope["topic"] is None and scope["broker_id"] is None:
        raise CommandError("find-hanging needs --topic NAME or --broker-id ID, where to search")
    if scope["partition"] is not None and scope["topic"] is None:
        raise CommandError("--partition needs --topic")
    with connected(target) as client:
        brokers = partitions_to_search(client, **scope)
        hanging = find_hanging(client, brokers, max_transaction_timeout * MS_PER_MINUTE)
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
                *found.place,
                found.producer.producer_id,
                found.producer.producer_epoch,
                found.producer.coordinator_epoch,
                found.producer.current_txn_start_offset,
                found.producer.last_timestamp,
                found.silent_ms // MS_PER_MINUTE,
            )
            for found in hanging
        ],
    )


@command.command("forceTerminateTransaction")
@click.option(
    "--transactionalId", "transactional_id", required=True, metavar="ID", help="The transactional id."
)
@click.pass_obj
def force_terminate_command(target: Target, /, *, transactional_id: str) -> None:
    """Abort the transaction of a transactional id and fence its producer."""
    with connected(target) as client:
        force_terminate(client, transactional_id)
