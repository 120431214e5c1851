"""The cluster itself: its id, its brokers and its controller."""

from dataclasses import dataclass

from millrace.client import NO_NODE, Client, Node


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster; `controller_id` is None while there is no controller."""

    cluster_id: str | None
    controller_id: int | None
    brokers: tuple[Node, ...]

    @property
    def broker_ids(self) -> list[int]:
        return [broker.id for broker in self.brokers]


async def describe_cluster(client: Client) -> ClusterDescription:
    """The brokers that are alive, in the order of their ids, and the controller."""
    response = await client.metadata([])
    return ClusterDescription(
        cluster_id=response.cluster_id,
        controller_id=None if response.controller_id == NO_NODE else response.controller_id,
        brokers=tuple(sorted(client.cluster.nodes.values())),
    )
