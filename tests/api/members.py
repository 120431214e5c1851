"""Group requests in any version, answered over the wire's bytes."""

from collections.abc import Callable
from typing import Any

from millrace.deferred import Deferred
from millrace.errors import Error
from millrace.wire.codec import decode, encode
from millrace.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from millrace.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

from ..waiting import run_until
from .api import Api

GROUP = "readers"
LATEST_JOIN, LATEST_SYNC = 9, 5


class Talk:
    """Sends requests as bytes of their version, and reads what comes back as bytes of that version."""

    def __init__(self, api: Api, call: Callable[..., Any]) -> None:
        self.api = api
        self._call = call

    def __call__(self, request: Any, version: int) -> Any:
        return self.read(self.send(request, version), version)

    def send(self, request: Any, version: int) -> Any:
        sent, _ = decode(type(request), version, encode(request, version))
        return self._call(sent, version)

    def read(self, response: Any, version: int) -> Any:
        """Wait for a response, and see only what its version carries."""
        if isinstance(response, Deferred):
            arrived: list[Any] = []
            response.then(arrived.append)
            run_until(self.api.loop, lambda: arrived)
            (response,) = arrived
        received, _ = decode(type(response), version, encode(response, version))
        return received

    def join(self, version: int = LATEST_JOIN, member_id: str = "", **more: Any) -> Any:
        return self(join_request(member_id=member_id, **more), version)

    def enter(self, version: int = LATEST_JOIN, **more: Any) -> Any:
        """Join as a client of this version does."""
        answer = self.join(version, **more)
        if answer.error_code == Error.MEMBER_ID_REQUIRED:
            answer = self.join(version, answer.member_id, **more)
        return answer

    def assign(self, joined: Any, version: int = LATEST_SYNC, instance: str | None = None) -> Any:
        """As the only member, take the work."""
        return self(sync_request(joined, {joined.member_id: b"work"}, instance), version)


def join_request(**more: Any) -> JoinGroupRequest:
    settings = {
        "group_id": GROUP,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 30_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\xff\xff\xff\xff")],
    }
    return JoinGroupRequest(**(settings | more))


def sync_request(joined: Any, work: dict[str, bytes], instance: str | None = None) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=GROUP,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=key, assignment=to) for key, to in work.items()],
    )
