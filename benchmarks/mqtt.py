"""MQTT messages per second: `millrace mqtt` on a broker of ours, beside mosquitto.

    python -m benchmarks.mqtt [--messages N] [--idle N]

Four clients publish with a window of 100 messages each, and one client subscribes to all of them with the
same QoS. Counted is the time until the subscriber has every message. mosquitto keeps messages in memory;
millrace acknowledges when they are in the log, and delivers them from there.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from millrace.mqtt.packets import packets as p
from millrace.mqtt.packets.decoding import decode, next_frame
from millrace.mqtt.packets.encoding import encode
from millrace.mqtt.packets.packets import Packet, Version
from millrace.ports import free_port

PUBLISHERS = 4
WINDOW = 100
PAYLOAD = b"x" * 100
HOST = "127.0.0.1"
MAX = 1 << 20
ROUNDS = 3


class Peer(NamedTuple):
    """A running server."""

    name: str
    port: int
    process: psutil.Process


class Result(NamedTuple):
    messages_per_second: float
    cpu_seconds: float


class Client(asyncio.Protocol):
    """A connection that counts, and acknowledges what it gets."""

    def __init__(self, qos: int) -> None:
        self.qos = qos
        self.received = 0
        self.completed = 0
        self.progress = asyncio.Event()
        self.is_lost = False
        self._buffer = bytearray()
        self._transport: asyncio.Transport

    @classmethod
    async def connect(cls, port: int, client_id: str, qos: int) -> Client:
        loop = asyncio.get_running_loop()
        transport, client = await loop.create_connection(lambda: cls(qos), HOST, port)
        client._transport = transport
        client.send(p.Connect(client_id, Version.V3_1_1))
        await client.progress.wait()
        return client

    def send(self, *packets: Packet) -> None:
        self._transport.write(b"".join(encode(packet, Version.V3_1_1) for packet in packets))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        position = 0
        replies: list[Packet] = []
        while frame := next_frame(self._buffer, position, MAX):
            position = frame.end
            packet = decode(frame.first, bytes(self._buffer[frame.start : frame.end]), Version.V3_1_1)
            match packet:
                case p.Publish(qos=1):
                    replies.append(p.Puback(packet.packet_id))
                case p.Publish(qos=2):
                    replies.append(p.Pubrec(packet.packet_id))
                case p.Pubrec():
                    replies.append(p.Pubrel(packet.packet_id))
                case p.Pubrel():
                    replies.append(p.Pubcomp(packet.packet_id))
            self.received += isinstance(packet, p.Publish)
            self.completed += isinstance(packet, p.Puback | p.Pubcomp)
        del self._buffer[:position]
        if replies:
            self.send(*replies)
        self.progress.set()

    async def until(self, attribute: str, count: int) -> None:
        while getattr(self, attribute) < count:
            if self.is_lost:
                raise ConnectionError("the server has closed the connection")
            self.progress.clear()
            await self.progress.wait()

    async def publish(self, topic: str, count: int) -> None:
        """Publish messages, a window at a time."""
        for start in range(0, count, WINDOW):
            numbers = range(start, min(start + WINDOW, count))
            self.send(
                *(
                    p.Publish(topic, PAYLOAD, self.qos, packet_id=i % 60_000 + 1 if self.qos else 0)
                    for i in numbers
                )
            )
            if self.qos:
                await self.until("completed", numbers.stop)
            else:
                await asyncio.sleep(0)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        self.progress.set()

    def close(self) -> None:
        self._transport.close()


async def measure(peer: Peer, qos: int, messages: int) -> Result:
    """Publish from several clients to one subscriber."""
    subscriber = await Client.connect(peer.port, "subscriber", qos)
    subscriber.progress.clear()
    subscriber.send(p.Subscribe(1, [p.Subscription("bench/#", qos)]))
    await subscriber.progress.wait()
    publishers = [await Client.connect(peer.port, f"publisher-{i}", qos) for i in range(PUBLISHERS)]
    before = peer.process.cpu_times()
    started = time.perf_counter()
    each = messages // PUBLISHERS
    await asyncio.gather(*(one.publish(f"bench/{i}", each) for i, one in enumerate(publishers)))
    # QoS 0 may be dropped on the way: the time counts until no more arrives.
    expected = each * PUBLISHERS
    waiting = asyncio.ensure_future(subscriber.until("received", expected))
    while not waiting.done():
        seen = subscriber.received
        await asyncio.wait([waiting], timeout=5)
        if qos == 0 and subscriber.received == seen:
            waiting.cancel()
            break
    elapsed = time.perf_counter() - started
    after = peer.process.cpu_times()
    for client in (subscriber, *publishers):
        client.close()
    if subscriber.received < expected:
        print(f"  {expected - subscriber.received} of {expected} messages of QoS 0 were dropped")
        elapsed -= 5
    return Result(subscriber.received / elapsed, after.user + after.system - before.user - before.system)


async def hold_idle(peer: Peer, count: int) -> float:
    """Connect idle clients; returns the memory of each in KiB."""
    before = peer.process.memory_info().rss
    clients = []
    for start in range(0, count, 200):
        numbers = range(start, min(start + 200, count))
        clients += await asyncio.gather(*(Client.connect(peer.port, f"idle-{i}", 0) for i in numbers))
    grown: int = peer.process.memory_info().rss - before
    for client in clients:
        client.close()
    return grown / 1024 / count


@contextmanager
def child(*command: object) -> Iterator[psutil.Process]:
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


@contextmanager
def millrace(directory: Path) -> Iterator[Peer]:
    log, port = free_port(), free_port()
    run = (sys.executable, "-m", "millrace")
    with child(*run, "up", "--port", log, "--data-dir", directory):
        wait_for(log)
        with child(*run, "mqtt", "--bootstrap-server", f"{HOST}:{log}", "--port", port) as process:
            wait_for(port)
            yield Peer("millrace", port, process)


@contextmanager
def mosquitto(directory: Path) -> Iterator[Peer]:
    port = free_port()
    config = directory / "mosquitto.conf"
    # Without its limits, which would drop messages of QoS 1 and close clients with 100 of QoS 2.
    limits = f"max_queued_messages 0\nmax_inflight_messages {2 * WINDOW}\n"
    config.write_text(f"listener {port} {HOST}\nallow_anonymous true\n{limits}")
    with child("mosquitto", "-c", config) as process:
        wait_for(port)
        yield Peer("mosquitto", port, process)


def wait_for(port: int) -> None:
    """Return once a server listens on the port."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if any(
            found.laddr.port == port and found.status == psutil.CONN_LISTEN
            for found in psutil.net_connections("tcp")
        ):
            return
        time.sleep(0.05)
    raise TimeoutError(f"nothing listens on port {port}")


async def compare(peers: list[Peer], messages: int, idle: int) -> None:
    for qos in (0, 1, 2):
        for peer in peers:
            results = [await measure(peer, qos, messages) for _ in range(ROUNDS)]
            best = max(results)
            print(
                f"QoS {qos}  {peer.name:<10} {best.messages_per_second:>9,.0f} messages/s"
                f"  {best.cpu_seconds:.2f} CPU s"
            )
    for peer in peers:
        print(f"idle   {peer.name:<10} {await hold_idle(peer, idle):>9.1f} KiB per connection, of {idle:,}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--idle", type=int, default=10_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, millrace(Path(directory) / "data") as ours:
        if shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin") is None:
            print("mosquitto is not installed (apt-get install mosquitto)")
            asyncio.run(compare([ours], arguments.messages, arguments.idle))
            return
        with mosquitto(Path(directory)) as theirs:
            asyncio.run(compare([ours, theirs], arguments.messages, arguments.idle))


if __name__ == "__main__":
    main()
