"""Clients that send arbitrary bytes get an error or are closed, and other clients do not notice.

Every round has its own seed, which is printed if the round fails; MILLRACE_FUZZ_SEED=n starts with that seed.
The rounds last for MILLRACE_FUZZ_SECONDS.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import struct
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from millrace.api import HANDLERS
from millrace.api.dispatch import Handler
from millrace.testing import BrokerProcess
from millrace.wire.frames import encode_request, read_response
from millrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from millrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from millrace.wire.schema import Request

from ..wire_client import WireClient
from .healthy import HealthyClient
from .messages import MessageMaker, damaged
from .raw import Closed, RawClient

SECONDS = float(os.environ.get("MILLRACE_FUZZ_SECONDS", "10"))
FIRST_SEED = int(os.environ.get("MILLRACE_FUZZ_SEED", "1"))
REQUESTS_PER_VERSION = 25
MAX_GROWTH_BYTES = 100 << 20

# Log messages of the broker or the event loop about unexpected failures.
BUGS = re.compile(r"a bug:|Traceback|Unhandled|Exception in callback|never retrieved")


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    properties = {
        "broker.id": "1",
        "socket.request.max.bytes": str(8 << 20),
        # Requests that wait for a group wait briefly.
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1",
    }
    with BrokerProcess(properties) as broker:
        yield broker


@pytest.fixture(autouse=True)
def no_bugs(broker: BrokerProcess) -> Iterator[None]:
    """No request may lead to an unexpected failure."""
    yield
    log = broker.log_file.read_text()
    found = BUGS.search(log)
    assert not found, log[max(found.start() - 500, 0) : found.start() + 5000]


def existing_topics(broker: BrokerProcess) -> tuple[bytes, ...]:
    with WireClient(broker.bootstrap) as client:
        topics = [CreatableTopic(name=f"fuzzed-{n}", num_partitions=2, replication_factor=1) for n in (0, 1)]
        client.send(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
        names = [MetadataRequestTopic(name=topic.name) for topic in topics]
        response = client.send(MetadataRequest(topics=names), 12)
        return tuple(topic.topic_id for topic in response.topics)


# Misbehaving clients


def sends_noise(client: RawClient, maker: MessageMaker, chance: random.Random) -> None:
    client.send(chance.randbytes(chance.choice((1, 3, 4, 5, 100, 70_000))))


def sends_noise_in_a_frame(client: RawClient, maker: MessageMaker, chance: random.Random) -> None:
    body = chance.randbytes(chance.choice((0, 1, 7, 8, 9, 10, 100, 70_000)))
    client.send(struct.pack(">i", len(body)) + body)


def claims_an_absurd_length(client: RawClient, maker: MessageMaker, chance: random.Random) -> None:
    length = chance.choice((-1, -(2**31), 0, 7, (8 << 20) + 1, 2**31 - 1))
    client.send(struct.pack(">i", length) + chance.randbytes(100))


def stops_in_the_middle(client: RawClient, maker: MessageMaker, chance: random.Random) -> None:
    frame = random_frame(maker)
    client.send(frame[: chance.randrange(len(frame))])


def requests_an_unknown_api(client: RawClient, maker: MessageMaker, chance: random.Random) -> None:
    key = chance.choice((*range(100), -1, 32767))
    version = chance.choice((-1, 0, 1, 5, 14, 99, 32767))
    body = struct.pack(">hhih", key, version, 1, -1) + chance.randbytes(chance.choice((0, 1, 50)))
    client.send(struct.pack(">i", len(body)) + body)


def sends_a_damaged_request(client: RawClient, maker: MessageMaker, chance: random.Random) -> None:
    body = damaged(random_frame(maker)[4:], chance)
    client.send(struct.pack(">i", len(body)) + body)


def pipelines_everything(client: RawClient, maker: MessageMaker, chance: random.Random) -> None:
    frames = [random_frame(maker) for _ in range(chance.randint(2, 60))]
    if chance.random() < 0.5:
        frames[-1] = frames[-1][:4] + damaged(frames[-1][4:], chance)
    client.send(b"".join(frames))


MISCHIEF: tuple[Callable[[RawClient, MessageMaker, random.Random], None], ...] = (
    sends_noise,
    sends_noise_in_a_frame,
    claims_an_absurd_length,
    stops_in_the_middle,
    requests_an_unknown_api,
    sends_a_damaged_request,
    sends_a_damaged_request,
    sends_a_damaged_request,
    pipelines_everything,
)


def random_frame(maker: MessageMaker) -> bytes:
    request, version = maker.request()
    return encode_request(request, version, 7, "fuzz")


def leave(client: RawClient, chance: random.Random) -> None:
    """Wait briefly for the broker's reaction, then close the connection with or without a reset."""
    client.socket.settimeout(0.01)
    with contextlib.suppress(TimeoutError):
        client.drain()
    if chance.random() < 0.5:
        client.hang_up()


def test_misbehaving_clients_do_not_disturb_others(broker: BrokerProcess) -> None:
    topic_ids = existing_topics(broker)
    process = psutil.Process(broker.pid)
    deadline = time.monotonic() + SECONDS
    seed = FIRST_SEED
    with HealthyClient(broker.bootstrap):
        resident = process.memory_info().rss
        while time.monotonic() < deadline:
            try:
                play(seed, broker, topic_ids)
            except BaseException:
                print(f"MILLRACE_FUZZ_SEED={seed} starts with the failing round")
                raise
            seed += 1
        growth = process.memory_info().rss - resident
    print(f"{seed - FIRST_SEED} rounds; the broker grew by {growth >> 10} KiB")
    assert growth < MAX_GROWTH_BYTES


def play(seed: int, broker: BrokerProcess, topic_ids: tuple[bytes, ...]) -> None:
    chance = random.Random(seed)
    with RawClient(broker.bootstrap) as client:
        try:
            chance.choice(MISCHIEF)(client, MessageMaker(chance, topic_ids), chance)
        except Closed:
            return
        leave(client, chance)


@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.request.__name__)
def test_odd_requests_are_answered_in_every_version(broker: BrokerProcess, handler: Handler) -> None:
    topic_ids = existing_topics(broker)
    for version in range(handler.lowest, handler.highest + 1):
        for seed in range(FIRST_SEED, FIRST_SEED + REQUESTS_PER_VERSION):
            chance = random.Random(f"{handler.api_key} {version} {seed}")
            request = MessageMaker(chance, topic_ids).request_of(handler, version)
            exchange(broker, request, version)


def exchange(broker: BrokerProcess, request: Request, version: int) -> None:
    with RawClient(broker.bootstrap) as client:
        try:
            client.send(encode_request(request, version, 7, "fuzz"))
            if getattr(request, "acks", None) != 0:
                correlation_id, _ = read_response(request.response, version, client.read_frame())
                assert correlation_id == 7
        except Closed:
            pytest.fail(f"v{version} was closed without a response: {request}")
