"""Offsets of topics."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer

from millrace.pipelines.errors import BrokerUnavailable, PipelineError
from millrace.pipelines.kafka import client, offsets
from millrace.testing import Broker

from ..log_client import create

YEAR_2001 = 978_307_200_000


@pytest.fixture(scope="module")
def topic(broker: Broker) -> str:
    """Three records of 2001 in partition 0, one of 2002 in partition 1."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    create(broker.bootstrap, "numbers", partitions=2)
    for hour in range(3):
        producer.produce("numbers", b"1", partition=0, timestamp=YEAR_2001 + hour * 3_600_000)
    producer.produce("numbers", b"2", partition=1, timestamp=YEAR_2001 + 31_536_000_000)
    producer.flush()
    return "numbers"


def test_topic_has_a_start_and_an_end(broker: Broker, topic: str) -> None:
    assert offsets.start_offsets(broker.bootstrap, [topic]) == {topic: {0: 0, 1: 0}}
    assert offsets.end_offsets(broker.bootstrap, [topic]) == {topic: {0: 3, 1: 1}}


def test_time_is_the_first_record_at_or_after_it_or_the_end(broker: Broker, topic: str) -> None:
    new_year = datetime.fromtimestamp(YEAR_2001 / 1000, UTC)
    at = {
        hours: offsets.offsets_at(broker.bootstrap, [topic], new_year + timedelta(hours=hours))[topic]
        for hours in (0, 1, 24)
    }
    assert at == {0: {0: 0, 1: 0}, 1: {0: 1, 1: 0}, 24: {0: 3, 1: 0}}


def test_missing_topic_is_named_with_the_remedy(broker: Broker) -> None:
    with pytest.raises(PipelineError, match=r"there is no topic nowhere .* --create --topic nowhere"):
        offsets.end_offsets(broker.bootstrap, ["nowhere"])


def test_unavailable_broker_has_its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "REQUEST_SECONDS", 0.3)
    with pytest.raises(BrokerUnavailable, match="the broker at localhost:1 does not answer"):
        offsets.end_offsets("localhost:1", ["numbers"])


def test_topics_have_ids_and_patterns_match_whole_names(broker: Broker, topic: str) -> None:
    assert offsets.topic_ids(broker.bootstrap, [topic, "nowhere"]).keys() == {topic}
    assert offsets.matching(broker.bootstrap, "num.*") == [topic]
    assert offsets.matching(broker.bootstrap, "num") == []
    assert offsets.cluster_id(broker.bootstrap)


def test_records_behind_the_end_are_counted(broker: Broker, topic: str) -> None:
    ends = offsets.end_offsets(broker.bootstrap, [topic])
    assert offsets.behind({topic: {0: 1}}, ends) == 3
    assert offsets.behind({topic: {0: 3, 1: 1}}, ends) == 0
