"""What transaction coordinators tell: which transactions there are, and where they stand."""

from collections.abc import Iterable
from typing import NamedTuple

from millrace.cli.client import Client
from millrace.cli.coordinators import KeyType, by_broker, find_coordinators, until_coordinated
from millrace.cli.errors import CommandError, check
from millrace.errors import Error
from millrace.wire.messages import describe_transactions as describe_api
from millrace.wire.messages import list_transactions as list_api


class Listed(NamedTuple):
    """A transactional id and the broker that coordinates it."""

    coordinator_id: int
    transaction: list_api.TransactionState


def list_transactions(client: Client, request: list_api.ListTransactionsRequest) -> list[Listed]:
    """What every broker coordinates; a broker too old for a filter is an error, not a longer list."""
    node_ids = sorted(broker.node_id for broker in client.metadata([]).brokers)
    return [listed for node_id in node_ids for listed in _list_on(client, node_id, request)]


def _list_on(client: Client, node_id: int, request: list_api.ListTransactionsRequest) -> list[Listed]:
    connection = client.broker(node_id)
    version = connection.best_version(list_api.ListTransactionsRequest) or 0
    if (request.duration_filter >= 0 and version < 1) or (request.transactional_id_pattern and version < 2):
        raise CommandError(f"the broker at {connection.address} is too old to filter transactions like that")

    def ask() -> list[Listed]:
        response = connection.send(request, list_api.ListTransactionsResponse)
        check(response.error_code)
        return [Listed(node_id, state) for state in response.transaction_states]

    return until_coordinated(client, ask)


class Described(NamedTuple):
    """A transaction and the broker that coordinates it."""

    coordinator_id: int
    state: describe_api.TransactionState


def describe_transactions(client: Client, transactional_ids: Iterable[str]) -> dict[str, Described]:
    """The transactions of those ids that exist."""
    wanted = list(transactional_ids)
    return until_coordinated(client, lambda: _describe(client, wanted))


def _describe(client: Client, transactional_ids: list[str]) -> dict[str, Described]:
    described = {}
    coordinators = find_coordinators(client, transactional_ids, KeyType.TRANSACTION)
    for node_id, ids in by_broker(coordinators).items():
        request = describe_api.DescribeTransactionsRequest(transactional_ids=ids)
        response = client.broker(node_id).send(request, describe_api.DescribeTransactionsResponse)
        for state in response.transaction_states:
            if state.error_code == Error.TRANSACTIONAL_ID_NOT_FOUND:
                continue
            check(state.error_code)
            described[state.transactional_id] = Described(node_id, state)
    return described
