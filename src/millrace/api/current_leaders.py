"""The leaders that a client is sent to when it asks a broker that does not lead (KIP-951)."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.errors import KafkaError
from millrace.wire.messages.current_leader import LeaderIdAndEpoch, NodeEndpoint


class CurrentLeaders:
    """The leaders that one response names, and their addresses on the client's listener."""

    def __init__(self, ctx: Context) -> None:
        self._image = ctx.image
        self._listener = ctx.session.listener.name
        self._endpoints: dict[int, NodeEndpoint] = {}

    @property
    def endpoints(self) -> list[NodeEndpoint]:
        return list(self._endpoints.values())

    def name_of(self, name: str, topic_id: bytes) -> str:
        """The name of a topic that a request names either way."""
        known = self._image.by_id.get(topic_id)
        return name if known is None else known.name

    def find(self, topic: str, index: int) -> LeaderIdAndEpoch | None:
        """The leader of a partition; None if the partition is unknown."""
        state = self._image.partition(topic, index)
        if state is None:
            return None
        if state.leader not in self._endpoints:
            self._add_endpoint(state.leader)
        return LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)

    def _add_endpoint(self, broker_id: int) -> None:
        try:
            host, port = self._image.endpoint(broker_id, self._listener)
        except KafkaError:
            # It has no leader now, or one that this client cannot reach by its listener.
            return
        rack = self._image.brokers[broker_id].rack
        self._endpoints[broker_id] = NodeEndpoint(node_id=broker_id, host=host, port=port, rack=rack)
