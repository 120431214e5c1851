"""A Kafka client over our own wire declarations, for tools, services, replication and tests.

    async with Client("localhost:9092") as client:
        metadata = await client.metadata(["orders"])

`Connection` is one connection to one broker: version negotiation, requests and their responses. `Client` is a
cluster: it finds partition leaders, the controller and the coordinators, and follows them when they move.
`security_of` reads TLS and SASL from Kafka's client properties, for `Client(..., security=...)`.
`millrace.admin` has the requests of tools and services. Every failure is a `KafkaError`.

A client belongs to one event loop; it is not thread-safe.
"""

from millrace.client.address import Address, InvalidAddress, parse_addresses
from millrace.client.client import Client
from millrace.client.connection import Connection, Security
from millrace.client.errors import (
    ApiNotOffered,
    BrokerUnreachable,
    ConnectionLost,
    ResponseTimeout,
    UnknownBroker,
)
from millrace.client.locations import CoordinatorType
from millrace.client.metadata import NO_NODE, Node, TopicPartition
from millrace.client.outcomes import Outcomes
from millrace.client.security import security_of

__all__ = [
    "NO_NODE",
    "Address",
    "ApiNotOffered",
    "BrokerUnreachable",
    "Client",
    "Connection",
    "ConnectionLost",
    "CoordinatorType",
    "InvalidAddress",
    "Node",
    "Outcomes",
    "ResponseTimeout",
    "Security",
    "TopicPartition",
    "UnknownBroker",
    "parse_addresses",
    "security_of",
]
