"""Points in time as users write them, and the exact ranges that they are settled to."""

from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame

from millrace.pipelines import PipelineError, log, pipeline
from millrace.pipelines.history.range import moment, settle
from millrace.pipelines.kafka import offsets
from millrace.testing import Broker

from ..log_client import create, produce

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("2026-11-01T12:00:00+00:00", NOON),
        ("2026-11-01T12:00Z", NOON),
        ("@1793534400000", NOON),
        ("-2h", NOON - timedelta(hours=2)),
        ("-1d12h", NOON - timedelta(hours=36)),
        ("2026-11-01", datetime(2026, 11, 1).astimezone()),
    ],
)
def test_points_in_time_are_parsed(text: str, expected: object) -> None:
    assert moment(text, now=NOON) == expected


@pytest.mark.parametrize("text", ["yesterday", "", "-", "-2y", "@x", "2026-13-01"])
def test_invalid_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(PipelineError, match="write 2026-11-01"):
        moment(text)


def test_range_ends_before_open_transactions(broker: Broker) -> None:
    create(broker.bootstrap, "paid")
    produce(broker.bootstrap, "paid", ["a"])
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "open"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("paid", "b")
    producer.flush()

    @pipeline(paid=log.text("paid"), output=log.text("copy"))
    def copy(paid: DataFrame) -> DataFrame:
        return paid

    assert offsets.end_offsets(broker.bootstrap, ["paid"]) == {"paid": {0: 2}}
    assert settle(copy, broker.bootstrap)["paid"].end == {"paid": {0: 1}}
    producer.abort_transaction()
