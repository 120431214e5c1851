"""The seam between the broker and whatever decides on operations of principals."""

from typing import NamedTuple, Protocol

from millrace.security.operations import Operation, ResourceType


class Principal(NamedTuple):
    """The identity of a client, once it is authenticated."""

    kind: str
    name: str


ANONYMOUS = Principal("User", "ANONYMOUS")


class Resource(NamedTuple):
    """A topic, a group, a transactional id or the cluster."""

    kind: ResourceType
    name: str


CLUSTER = Resource(ResourceType.CLUSTER, "kafka-cluster")


class Authorizer(Protocol):
    """Decides whether a principal may perform an operation. Called on the loop, so it must not wait."""

    def allows(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool: ...

    def allows_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Whether there is any resource of a kind that the operation is allowed on."""
