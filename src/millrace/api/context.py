"""The surroundings of a request: services of the broker, the session of its connection, and its header."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from millrace.api.fetch_pace import Pacer
from millrace.api.fetch_sessions import FetchSessions
from millrace.api.long_requests import LongRequests
from millrace.clock import Clock
from millrace.cluster.cluster_store import ClusterStore
from millrace.cluster.image import ClusterImage
from millrace.cluster.store import MetadataStore
from millrace.config import BrokerConfig, Listener
from millrace.errors import Error, KafkaError
from millrace.groups.coordinator import Groups
from millrace.metrics import Metrics
from millrace.replication.hosted_partitions import HostedPartitions
from millrace.replication.waiting import Woken
from millrace.security.authentication import SaslSession
from millrace.security.authorizer import ANONYMOUS, Authorizer, Principal, Resource
from millrace.security.operations import ALL, SUPPORTED, Operation, ResourceType
from millrace.security.quotas import Quotas
from millrace.storage.inspector import Inspector
from millrace.txn.coordinator import Transactions
from millrace.txn.producer_ids import ProducerIdAllocator
from millrace.txn.remote import Verification
from millrace.wire.frames import RequestHeader


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of a broker that handlers use; the same for all its clients."""

    config: BrokerConfig
    metadata: MetadataStore
    partitions: HostedPartitions
    inspector: Inspector
    producer_ids: ProducerIdAllocator
    fetch_sessions: FetchSessions
    woken: Woken
    groups: Groups
    transactions: Transactions
    metrics: Metrics
    clock: Clock
    loop: asyncio.AbstractEventLoop
    long_requests: LongRequests
    run_in_thread: Callable[[Callable[[], object]], asyncio.Future[object]]
    quotas: Quotas
    api_versions: tuple[tuple[int, int, int], ...] = field(default=(), repr=False)
    """The APIs that the broker offers: key, lowest and highest version."""
    authorizer: Authorizer | None = None
    """Without one, every principal may perform every operation."""
    verification: Verification | None = None
    """Asks coordinators on any broker; without one, only this broker's."""
    cluster: ClusterStore | None = None
    """The broker's membership in a cluster; None while it is alone."""

    @property
    def member(self) -> ClusterStore:
        """The membership in a cluster; raises NOT_CONTROLLER if the broker is alone."""
        if self.cluster is None:
            raise KafkaError(Error.NOT_CONTROLLER, "This broker is not a member of a cluster.")
        return self.cluster


@dataclass(slots=True, weakref_slot=True)
class Session:
    """A client's connection."""

    listener: Listener
    client_host: str = ""
    principal: Principal = ANONYMOUS
    pacer: Pacer | None = None
    sasl: SaslSession | None = None
    """The authentication, on listeners with SASL."""


class Context(NamedTuple):
    """The surroundings of one request."""

    services: Services
    session: Session
    header: RequestHeader
    api_version: int

    @property
    def client_id(self) -> str | None:
        return self.header.client_id

    def allows(self, operation: Operation, resource: Resource) -> bool:
        """Whether the client may perform an operation on a resource."""
        authorizer, session = self.services.authorizer, self.session
        return authorizer is None or authorizer.allows(
            session.principal, session.client_host, operation, resource
        )

    def allows_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Whether the client may perform an operation on some resource of a kind."""
        authorizer, session = self.services.authorizer, self.session
        return authorizer is None or authorizer.allows_any(
            session.principal, session.client_host, operation, kind
        )

    def authorized_operations(self, resource: Resource) -> int:
        """The operations that the client may perform on a resource, as a bit field."""
        if self.services.authorizer is None:
            return ALL[resource.kind]
        if not self.allows(Operation.DESCRIBE, resource):
            return 0
        allowed = (operation for operation in SUPPORTED[resource.kind] if self.allows(operation, resource))
        return sum(1 << operation for operation in allowed)

    @property
    def image(self) -> ClusterImage:
        """The cluster as it is now. Take it once per request: the next look may see a newer one."""
        return self.services.metadata.image
