"""A client of a whole cluster: finds the broker that is responsible for a request, and sends it there."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self, TypeVar

from millrace.client.address import Address, parse_addresses
from millrace.client.connection import CLIENT_ID, PLAIN, REQUEST_SECONDS, Connection, Security
from millrace.client.errors import BrokerUnreachable, UnknownBroker
from millrace.client.locations import Controller, Coordinators, CoordinatorType, Leaders, Nodes
from millrace.client.metadata import NO_NODE, Metadata, TopicPartition
from millrace.client.outcomes import Outcomes
from millrace.client.routing import Call, route
from millrace.clock import Clock
from millrace.timers import LoopTimers, Timers
from millrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from millrace.wire.schema import Request, Response

K = TypeVar("K")
R = TypeVar("R", bound=Response)
T = TypeVar("T")


class Client:
    """A Kafka cluster, reached through any of its bootstrap brokers.

    `async with Client(bootstrap) as client` connects, or raises BrokerUnreachable if no broker answers. From
    then on, requests are sent again when brokers move or restart, for at most `timeout_seconds`.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = CLIENT_ID,
        timeout_seconds: float = REQUEST_SECONDS,
        security: Security = PLAIN,
        clock: Clock | None = None,
        timers: Timers | None = None,
    ) -> None:
        """`clock` and `timers` measure the timeouts; by default the machine's."""
        self.timeout_seconds = timeout_seconds
        self.clock = clock or Clock()
        self._timers = timers
        self.cluster = Metadata()
        self._bootstrap = parse_addresses(bootstrap)
        self._client_id = client_id
        self._security = security
        self._connections: dict[Address, Connection] = {}
        # Two requests that need the same broker open one connection.
        self._opening: dict[Address, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._leaders = Leaders(self)
        self._controller = Controller(self)
        self._coordinators = {key_type: Coordinators(self, key_type) for key_type in CoordinatorType}

    async def __aenter__(self) -> Self:
        await self.any_broker()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    @property
    def timers(self) -> Timers:
        if self._timers is None:
            self._timers = LoopTimers(asyncio.get_running_loop())
        return self._timers

    @property
    def timeout_ms(self) -> int:
        """The timeout as requests carry it."""
        return round(self.timeout_seconds * 1000)

    # Connections

    async def any_broker(self) -> Connection:
        """A connection to whichever broker can be reached."""
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        known = [node.address for node in self.cluster.nodes.values()]
        failures = []
        for address in dict.fromkeys([*known, *self._bootstrap]):
            try:
                return await self._connection(address)
            except BrokerUnreachable as failure:
                failures.append(failure.message)
        raise BrokerUnreachable("; ".join(failures))

    async def broker(self, node_id: int) -> Connection:
        """The connection to one broker of the cluster. Raises UnknownBroker."""
        if node_id not in self.cluster.nodes:
            await self.refresh([])
        if node_id not in self.cluster.nodes:
            known = ", ".join(map(str, sorted(self.cluster.nodes)))
            raise UnknownBroker(f"there is no broker {node_id}; the brokers are {known}")
        connection = await self._connection(self.cluster.nodes[node_id].address)
        connection.node_id = node_id
        return connection

    async def _connection(self, address: Address) -> Connection:
        async with self._opening[address]:
            connection = self._connections.get(address)
            if connection is None or not connection.is_open:
                connection = await Connection.open(
                    address,
                    client_id=self._client_id,
                    timeout_seconds=self.timeout_seconds,
                    security=self._security,
                    clock=self.clock,
                    timers=self.timers,
                )
                self._connections[address] = connection
            return connection

    # Metadata

    async def metadata(
        self, topics: Iterable[str] | None = None, *, create: bool = False
    ) -> MetadataResponse:
        """The brokers, and these topics or all; `create` lets the broker create missing ones."""
        names = None if topics is None else list(topics)

        async def call(connection: Connection, _: list[None]) -> Outcomes[None, MetadataResponse]:
            return Outcomes({None: await self._fetch_metadata(connection, names, create)})

        return (await self.call_any([None], call))[None]

    async def refresh(self, topics: Iterable[str]) -> None:
        """Update what is known of the brokers and of these topics, in one attempt."""
        await self._fetch_metadata(await self.any_broker(), list(topics), create=False)

    async def _fetch_metadata(
        self, connection: Connection, topics: list[str] | None, create: bool
    ) -> MetadataResponse:
        request = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=create,
        )
        response = await connection.send(request, MetadataResponse)
        self.cluster.update(response)
        return response

    # Requests

    async def send(self, request: Request, expect: type[R]) -> R:
        """Send a request that any broker can answer, and may answer twice."""

        async def call(connection: Connection, _: list[None]) -> Outcomes[None, R]:
            return Outcomes({None: await connection.send(request, expect)})

        return (await self.call_any([None], call))[None]

    async def call_any(self, keys: Iterable[K], call: Call[K, T]) -> Outcomes[K, T]:
        """Call any broker about these keys."""
        return await self.call_nodes(dict.fromkeys(keys, NO_NODE), call)

    async def call_controller(self, keys: Iterable[K], call: Call[K, T]) -> Outcomes[K, T]:
        """Call the controller about these keys; only once if the broker may have handled the request."""
        return await route(self, keys, self._controller, call, is_repeatable=False)

    async def call_brokers(self, node_ids: Iterable[int], call: Call[int, T]) -> Outcomes[int, T]:
        """Call each of these brokers; the list that a call gets has one id."""
        return await self.call_nodes({node_id: node_id for node_id in node_ids}, call)

    async def call_nodes(self, by_key: Mapping[K, int], call: Call[K, T]) -> Outcomes[K, T]:
        """Call the broker that is given for each key; NO_NODE stands for any."""
        return await route(self, by_key, Nodes(by_key), call)

    async def call_leaders(
        self, partitions: Iterable[TopicPartition], call: Call[TopicPartition, T]
    ) -> Outcomes[TopicPartition, T]:
        """Call the leaders of these partitions."""
        return await route(self, partitions, self._leaders, call)

    async def call_coordinators(
        self, key_type: CoordinatorType, keys: Iterable[str], call: Call[str, T]
    ) -> Outcomes[str, T]:
        """Call the coordinators of these groups or transactional ids."""
        return await route(self, keys, self._coordinators[key_type], call)
