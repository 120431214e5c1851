"""The handlers of a broker, on real metadata and real logs, without a network."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from millrace.api import HANDLERS_BY_KEY
from millrace.api.context import Context, Session
from millrace.api.dispatch import Dispatcher, Interceptor
from millrace.cluster.image import ClusterImage
from millrace.config import Listener
from millrace.net.buffers import FrameBuffers
from millrace.security.authorizer import Authorizer
from millrace.wire.frames import RequestHeader

from ..node import Node

LISTENER = Listener("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT", "broker.example", 19092)

SMALL_AND_QUICK = {
    "auto.create.topics.enable": "true",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
}


class Api:
    """The handlers of a broker without its network, as one client uses them.

    Its attributes are those of the broker's services and of the client's session.
    """

    def __init__(self, node: Node, properties: dict[str, str] | None = None) -> None:
        opened = node.open(SMALL_AND_QUICK | (properties or {})).node
        self.request_memory = FrameBuffers(-1)
        self.services = opened.services(self.request_memory)
        self.session = Session(LISTENER)
        self.client_id: str | None = None
        self.api_version = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.services if hasattr(self.services, name) else self.session, name)

    @property
    def image(self) -> ClusterImage:
        return self.services.metadata.image

    def context(self) -> Context:
        """The surroundings of a request of this client."""
        header = RequestHeader(0, self.api_version, 1, self.client_id)
        return Context(self.services, self.session, header, self.api_version)

    def authorize_with(self, authorizer: Authorizer | None) -> None:
        self.services = replace(self.services, authorizer=authorizer)

    def dispatcher(self, interceptors: Mapping[int, Interceptor] | None = None) -> Dispatcher:
        return Dispatcher(self.services, self.session, HANDLERS_BY_KEY, interceptors or {})
