"""Sessions that outlive their connections, and servers that do not outlive their sessions."""

from typing import Any

import pytest

from millrace.mqtt.packets import packets as p
from millrace.mqtt.packets.packets import Version
from millrace.mqtt.packets.properties import Properties
from millrace.mqtt.packets.reasons import Reason
from millrace.mqtt.settings import Settings
from millrace.testing import Broker

from ..waiting import until
from .raw_client import RawClient
from .serving import RunningServer, ServerProcess, running

KEPT = Properties(session_expiry_interval=3600)


def lasting(port: int, client_id: str, **more: Any) -> RawClient:
    """A client whose session outlives its connection."""
    return RawClient(port, client_id, clean_start=False, properties=KEPT, **more)


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("qos", [1, 2])
def test_messages_wait_for_a_client_that_is_away(
    server: RunningServer, name: str, version: Version, qos: int
) -> None:
    properties = KEPT if version is Version.V5 else Properties()
    first = RawClient(server.port, name, version=version, clean_start=False, properties=properties)
    first.subscribe(name, qos=qos)
    first.disconnect()
    with RawClient(server.port, f"{name}-out") as publisher:
        for number in range(5):
            publisher.publish(name, b"%d" % number, 2)
    with RawClient(server.port, name, version=version, clean_start=False, properties=properties) as again:
        assert again.connack is not None
        assert again.connack.session_present
        assert [int(again.take().payload) for _ in range(5)] == list(range(5))


def test_qos_0_does_not_wait_for_a_client_that_is_away(server: RunningServer, name: str) -> None:
    client = lasting(server.port, name)
    client.subscribe(name)
    client.disconnect()
    with RawClient(server.port, f"{name}-out") as publisher:
        publisher.publish(name, b"lost", 0)
        publisher.publish(name, b"kept", 1)
    with lasting(server.port, name) as client:
        assert client.take().payload == b"kept"


def test_a_clean_start_forgets_the_session(server: RunningServer, name: str) -> None:
    client = lasting(server.port, name)
    client.subscribe(name)
    client.disconnect()
    with RawClient(server.port, name, properties=KEPT) as clean:
        assert clean.connack is not None
        assert not clean.connack.session_present
        clean.publish(name, b"x")
        clean.ping()


def test_a_session_ends_when_it_expires(server: RunningServer, name: str) -> None:
    RawClient(server.port, name, properties=Properties(session_expiry_interval=1)).disconnect()

    def is_gone() -> bool:
        with lasting(server.port, f"{name}-other"):
            return server.counters.sessions == 0 or name not in sessions(server)

    until(is_gone)


def sessions(server: RunningServer) -> set[str]:
    async def read() -> set[str]:
        return set(server._server._sessions.by_client)

    found: set[str] = server.call(read)
    return found


def test_unacknowledged_messages_are_sent_again_with_their_packet_ids(
    server: RunningServer, name: str
) -> None:
    client = lasting(server.port, name)
    client.subscribe(name, qos=2)
    with RawClient(server.port, f"{name}-out") as publisher:
        publisher.publish(name, b"one", 1)
        publisher.publish(name, b"two", 2)
        publisher.publish(name, b"three", 2)
    one, two, three = (client.take(acknowledge=False) for _ in range(3))
    client.send(p.Pubrec(three.packet_id))
    client.expect(p.Pubrel)
    client.close()
    with lasting(server.port, name) as client:
        again = [client.take(acknowledge=False) for _ in range(2)]
        assert [(m.payload, m.packet_id, m.duplicate) for m in again] == [
            (b"one", one.packet_id, True),
            (b"two", two.packet_id, True),
        ]
        assert client.expect(p.Pubrel).packet_id == three.packet_id


def test_a_slow_client_goes_on_from_the_log_and_delays_no_other(broker: Broker, name: str) -> None:
    settings = Settings(bootstrap=broker.bootstrap, name=name, queued_messages=20)
    count = 300
    with (
        running(settings) as server,
        RawClient(server.port, f"{name}-slow") as slow,
        RawClient(server.port, f"{name}-fast") as fast,
        RawClient(server.port, f"{name}-out") as publisher,
    ):
        slow.subscribe(name)
        fast.subscribe(name)
        for number in range(count):
            publisher.publish(name, b"%d" % number)
            assert int(fast.take().payload) == number
        assert server.counters.feeds_behind >= 1
        assert [int(slow.take().payload) for _ in range(count)] == list(range(count))


def test_memory_of_a_slow_client_is_bounded_while_others_publish(broker: Broker, name: str) -> None:
    settings = Settings(bootstrap=broker.bootstrap, name=name, queued_bytes=100_000)
    with (
        running(settings) as server,
        RawClient(server.port, f"{name}-slow") as slow,
        RawClient(server.port, f"{name}-out") as publisher,
    ):
        slow.subscribe(name, qos=0)
        slow.subscribe(f"{name}/certain")
        payload = b"x" * 50_000
        for _ in range(400):
            publisher.publish(name, payload, 0)
        publisher.publish(f"{name}/certain", b"end")
        until(lambda: server.counters.messages_dropped > 0)
        received = 0
        while slow.take().payload != b"end":
            received += 1
        assert received + server.counters.messages_dropped == 400


def test_a_client_that_is_far_behind_reads_the_log_in_turns(
    server: RunningServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millrace.mqtt.sessions.feed.TURN_RECORDS", 10)
    client = lasting(server.port, name)
    client.subscribe(name)
    client.disconnect()
    with RawClient(server.port, f"{name}-out") as publisher:
        publisher.publish(name, b"first")
        publisher.send(*(p.Publish(f"{name}/other", b"", 0) for _ in range(95)))
        publisher.publish(name, b"last")
    with lasting(server.port, name) as client:
        assert [client.take().payload for _ in range(2)] == [b"first", b"last"]
        client.publish(name, b"live")
        assert client.take().payload == b"live"


def test_a_shared_group_keeps_messages_while_every_member_is_away(server: RunningServer, name: str) -> None:
    member = lasting(server.port, name)
    member.subscribe(f"$share/g/{name}")
    member.disconnect()
    with RawClient(server.port, f"{name}-out") as publisher:
        publisher.publish(name, b"work")
    with lasting(server.port, name) as member:
        assert member.take().payload == b"work"


def test_sessions_and_retained_messages_survive_kill_9(broker: Broker, name: str) -> None:
    options = ("--name", name)
    server = ServerProcess(broker.bootstrap, *options)
    client = lasting(server.port, name)
    client.subscribe(f"{name}/#", qos=2)
    client.subscribe(f"$share/g/{name}-shared", qos=1)
    with RawClient(server.port, f"{name}-out") as publisher:
        publisher.publish(f"{name}/kept", b"retained", retain=True)
        publisher.publish(f"{name}/a", b"done", 2)
        publisher.publish(f"{name}/a", b"open", 2)
        assert client.take().payload == b"retained"
        assert client.take().payload == b"done"
        held = client.take(acknowledge=False)
        client.send(p.Publish(f"{name}/b", b"mine", 2, packet_id=9))
        client.expect(p.Pubrec)
        client.take(acknowledge=False)
    server.kill9()
    client.close()
    server = ServerProcess(broker.bootstrap, *options)
    try:
        with RawClient(server.port, f"{name}-out") as publisher:
            publisher.publish(f"{name}/a", b"new", 2)
            publisher.publish(f"{name}-shared", b"work", 1)
        with lasting(server.port, name) as client:
            assert client.connack is not None
            assert client.connack.session_present
            # The same packet is the same message: it is not written twice.
            client.send(p.Publish(f"{name}/b", b"mine", 2, duplicate=True, packet_id=9))
            client.expect(p.Pubrec)
            client.send(p.Pubrel(9))
            client.expect(p.Pubcomp)
            found = [client.take() for _ in range(4)]
            assert [message.payload for message in found if message.qos == 2] == [b"open", b"mine", b"new"]
            assert found[0].packet_id == held.packet_id
            assert [message.payload for message in found if message.qos == 1] == [b"work"]
            client.ping()
        with RawClient(server.port, f"{name}-late") as late:
            late.subscribe(f"{name}/kept")
            message = late.take()
            assert (message.payload, message.retain) == (b"retained", True)
        code, out, err = server.stop()
        assert (code, out) == (0, "stopped\n")
        assert "Traceback" not in err
    finally:
        server.kill9()


def test_a_will_survives_kill_9(broker: Broker, name: str) -> None:
    options = ("--name", name)
    server = ServerProcess(broker.bootstrap, *options)
    watcher = lasting(server.port, f"{name}-watcher")
    watcher.subscribe(name)
    lost = RawClient(server.port, name, will=p.Will(name, b"gone", 1))
    assert lost.connack is not None
    assert lost.connack.reason is Reason.SUCCESS
    server.kill9()
    watcher.close()
    lost.close()
    server = ServerProcess(broker.bootstrap, *options)
    try:
        with lasting(server.port, f"{name}-watcher") as watcher:
            assert watcher.take().payload == b"gone"
    finally:
        server.kill9()
