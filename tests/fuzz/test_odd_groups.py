"""Group requests that no client sends, found by fuzzing."""

from millrace.testing import Broker
from millrace.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol

from .raw import RawClient


def test_a_protocol_offered_twice_is_one_protocol() -> None:
    twice = [JoinGroupRequestProtocol(name="range", metadata=b"\0\0")] * 2
    request = JoinGroupRequest(
        group_id="group",
        protocol_type="consumer",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocols=twice,
    )
    with Broker({"group.initial.rebalance.delay.ms": "0"}) as broker, RawClient(broker.bootstrap) as client:
        answer = client.ask(request, 3)
        assert (answer.error_code, answer.protocol_name) == (0, "range")
