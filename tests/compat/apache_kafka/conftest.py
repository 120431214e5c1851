"""One Apache Kafka and one of our brokers for all tests here, which use different names."""

from collections.abc import Iterator

import pytest

from millrace.jars import JarsUnavailable, apache_kafka_classpath
from millrace.testing import Broker
from millrace.testing.apache_kafka import ApacheKafka
from millrace.wire.messages.find_coordinator import FindCoordinatorRequest
from millrace.wire.messages.init_producer_id import InitProducerIdRequest

from ... import jvm
from ...waiting import until
from .twins import Peer, Twins

PROPERTIES = {
    "node.id": "1",
    "auto.create.topics.enable": "false",
    "message.max.bytes": "100000",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.consumer.assignment.interval.ms": "0",
}
COORDINATOR_TYPES = (0, 1)


@pytest.fixture(scope="session")
def twins() -> Iterator[Twins]:
    try:
        apache_kafka_classpath()
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    with ApacheKafka(PROPERTIES, jvm_options=jvm.BROKER) as kafka, Broker(PROPERTIES) as broker:
        twins = Twins(Peer(kafka.bootstrap), Peer(broker.bootstrap))
        for peer in twins:
            for coordinator_type in COORDINATOR_TYPES:
                _wait_for_coordinator(peer, coordinator_type)
            _wait_for_producer_ids(peer)
        yield twins
        for peer in twins:
            peer.close()


def _wait_for_coordinator(peer: Peer, key_type: int) -> None:
    """The first request creates the coordinator's topic."""
    asked = FindCoordinatorRequest(key="anybody", key_type=key_type)
    until(lambda: peer.ask(asked, 3).error_code == 0)


def _wait_for_producer_ids(peer: Peer) -> None:
    """Kafka's broker gets a block of ids from its controller."""
    asked = InitProducerIdRequest(None, 0)
    until(lambda: peer.ask(asked, 4).error_code == 0)
