"""What a handler may touch: the domain, and the client it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from millrace.api.fetch_pace import Pacer
from millrace.api.fetch_sessions import FetchSessions
from millrace.api.long_requests import LongRequests
from millrace.clock import Clock
from millrace.cluster.image import ClusterImage
from millrace.cluster.store import MetadataStore
from millrace.config import BrokerConfig, Listener
from millrace.groups.coordinator import Groups
from millrace.replication.hosted_partitions import HostedPartitions
from millrace.replication.waiting import Woken
from millrace.storage.inspector import Inspector
from millrace.txn.coordinator import Transactions
from millrace.txn.producer_ids import ProducerIds


@dataclass(slots=True, weakref_slot=True)
class Context:
    """One per connection; a connection has one request at a time, whose version and client id are here."""

    config: BrokerConfig
    metadata: MetadataStore
    partitions: HostedPartitions
    inspector: Inspector
    producer_ids: ProducerIds
    fetch_sessions: FetchSessions
    woken: Woken
    groups: Groups
    transactions: Transactions
    clock: Clock
    loop: asyncio.AbstractEventLoop
    long_requests: LongRequests
    run_in_thread: Callable[[Callable[[], object]], asyncio.Future[object]]

    # The connection
    listener: Listener
    client_host: str = ""
    pacer: Pacer | None = None

    # The request being handled
    api_version: int = 0
    client_id: str | None = None

    # What this broker speaks, for ApiVersions: (api key, lowest, highest version)
    api_versions: tuple[tuple[int, int, int], ...] = field(default=(), repr=False)

    @property
    def image(self) -> ClusterImage:
        """The cluster as it is now. Take it once per request: the next look may see a newer one."""
        return self.metadata.image
