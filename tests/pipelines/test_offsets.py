"""Offsets of topics and groups, and queries' progress in consumer groups."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from millrace.pipelines.errors import BrokerUnavailable, PipelineError
from millrace.pipelines.kafka import client, offsets
from millrace.pipelines.kafka.client import admin
from millrace.pipelines.kafka.group_commits import GroupCommits
from millrace.pipelines.run.progress_listener import reached
from millrace.testing import Broker

YEAR_2001 = 978_307_200_000


@pytest.fixture(scope="module")
def topic(broker: Broker) -> str:
    """Three records of 2001 in partition 0, one of 2002 in partition 1."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    _create(broker, "numbers", 2)
    for hour in range(3):
        producer.produce("numbers", b"1", partition=0, timestamp=YEAR_2001 + hour * 3_600_000)
    producer.produce("numbers", b"2", partition=1, timestamp=YEAR_2001 + 31_536_000_000)
    producer.flush()
    return "numbers"


def _create(broker: Broker, name: str, partitions: int) -> None:
    client = admin(broker.bootstrap)
    client.create_topics([NewTopic(name, num_partitions=partitions)])[name].result()


def test_a_topic_has_a_start_and_an_end(broker: Broker, topic: str) -> None:
    assert offsets.start_offsets(broker.bootstrap, [topic]) == {topic: {0: 0, 1: 0}}
    assert offsets.end_offsets(broker.bootstrap, [topic]) == {topic: {0: 3, 1: 1}}


def test_a_time_is_the_first_record_from_then_on_or_the_end(broker: Broker, topic: str) -> None:
    new_year = datetime.fromtimestamp(YEAR_2001 / 1000, UTC)
    at = {
        hours: offsets.offsets_at(broker.bootstrap, [topic], new_year + timedelta(hours=hours))[topic]
        for hours in (0, 1, 24)
    }
    assert at == {0: {0: 0, 1: 0}, 1: {0: 1, 1: 0}, 24: {0: 3, 1: 0}}


def test_a_topic_that_is_not_there_is_named_with_the_remedy(broker: Broker) -> None:
    with pytest.raises(PipelineError, match=r"there is no topic nowhere .* --create --topic nowhere"):
        offsets.end_offsets(broker.bootstrap, ["nowhere"])


def test_committed_offsets_are_read_back_and_the_rest_is_left_out(broker: Broker, topic: str) -> None:
    commits = GroupCommits(broker.bootstrap)
    commits.put("readers", {topic: {0: 2}})
    commits.close()
    assert offsets.group_offsets(broker.bootstrap, "readers", [topic]) == {topic: {0: 2}}


def test_what_could_not_be_committed_is_committed_when_the_broker_is_back() -> None:
    with Broker() as broker:
        _create(broker, "numbers", 1)
        commits = GroupCommits(broker.bootstrap)
        broker.stop()
        commits.put("readers", {"numbers": {0: 7}})
        broker.start()
        _until(lambda: offsets.group_offsets(broker.bootstrap, "readers", ["numbers"]) != {})
        commits.close()
        assert offsets.group_offsets(broker.bootstrap, "readers", ["numbers"]) == {"numbers": {0: 7}}


def test_a_broker_that_is_away_is_told_from_other_troubles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "REQUEST_SECONDS", 0.3)
    with pytest.raises(BrokerUnavailable, match="the broker at localhost:1 does not answer"):
        offsets.end_offsets("localhost:1", ["numbers"])


def test_topics_have_ids_and_patterns_match_whole_names(broker: Broker, topic: str) -> None:
    assert offsets.topic_ids(broker.bootstrap, [topic, "nowhere"]).keys() == {topic}
    assert offsets.matching(broker.bootstrap, "num.*") == [topic]
    assert offsets.matching(broker.bootstrap, "num") == []
    assert offsets.cluster_id(broker.bootstrap)


def test_lag_counts_what_is_not_read_yet(broker: Broker, topic: str) -> None:
    ends = offsets.end_offsets(broker.bootstrap, [topic])
    assert offsets.behind({topic: {0: 1}}, ends) == 3
    assert offsets.behind({topic: {0: 3, 1: 1}}, ends) == 0


def test_a_group_stands_where_the_slower_of_two_inputs_is() -> None:
    progress = SimpleNamespace(
        sources=[
            SimpleNamespace(endOffset='{"t":{"0":5,"1":2}}'),
            SimpleNamespace(endOffset='{"t":{"0":3}}'),
            SimpleNamespace(endOffset="12"),
            SimpleNamespace(endOffset=None),
        ]
    )
    assert reached(progress) == {"t": {0: 3, 1: 2}}


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.02)
    pytest.fail("it did not come to pass")
