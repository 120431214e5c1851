"""Connections to the other brokers of the cluster, one each, opened when needed."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

from millrace.client.address import Address
from millrace.client.connection import PLAIN, Connection, Security
from millrace.client.errors import BrokerUnreachable
from millrace.client.security import security_of
from millrace.cluster.image import ClusterImage, Endpoint
from millrace.config import BrokerConfig
from millrace.config.security import TLS_OPTIONS
from millrace.errors import KafkaError
from millrace.wire.schema import Request, Response

R = TypeVar("R", bound=Response)

CLIENT_ID = "millrace-broker"
REQUEST_SECONDS = 30.0


def security_between_brokers(config: BrokerConfig) -> Security:
    """The security of connections to other brokers: that of their listener. Raises ConfigError."""
    name = config.inter_broker_listener
    listener = next((listener for listener in config.listeners if listener.name == name), None)
    if listener is None or listener.protocol == "PLAINTEXT":
        return PLAIN
    tls = config.tls(name)
    properties = {
        option.name: text
        for option in TLS_OPTIONS
        if (text := option.text(getattr(tls, option.attribute))) is not None
    }
    properties["security.protocol"] = listener.protocol
    if listener.has_sasl:
        mechanism = config.sasl_mechanism_inter_broker_protocol
        properties["sasl.mechanism"] = mechanism
        properties["sasl.jaas.config"] = config.jaas_config(name, mechanism) or ""
    return security_of(properties)


class Peers:
    """Owned by the broker loop; not thread-safe."""

    def __init__(self, image: Callable[[], ClusterImage], listener: str, security: Security = PLAIN) -> None:
        """`listener` is the name of the listener that brokers use among themselves."""
        self.listener = listener
        self._image = image
        self._security = security
        self._connections: dict[int, tuple[Endpoint, Connection]] = {}
        self._opening: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def open(self, endpoint: Endpoint, timeout_seconds: float = REQUEST_SECONDS) -> Connection:
        """A connection of the caller's own, for requests that wait long."""
        return await Connection.open(
            Address(*endpoint),
            client_id=CLIENT_ID,
            timeout_seconds=timeout_seconds,
            security=self._security,
        )

    async def send(self, broker: int, request: Request, expect: type[R]) -> R:
        """Send a request in its newest version. Raises KafkaError, BrokerUnreachable if it was not sent."""
        connection = await self._connection(broker)
        return await connection.send_in(request.versions[-1], request, expect)

    async def _connection(self, broker: int) -> Connection:
        try:
            endpoint = self._image().endpoint(broker, self.listener)
        except KafkaError as error:
            raise BrokerUnreachable(error.message or str(error)) from error
        async with self._opening[broker]:
            known = self._connections.get(broker)
            if known is not None and known[0] == endpoint and known[1].is_open:
                return known[1]
            if known is not None:
                known[1].close()
            connection = await self.open(endpoint)
            self._connections[broker] = (endpoint, connection)
            return connection

    def close(self) -> None:
        for _, connection in self._connections.values():
            connection.close()
        self._connections.clear()
