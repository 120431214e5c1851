"""A Spark cluster and an Apache Kafka broker, in processes of their own, for all tests of this folder."""

from collections.abc import Iterator

import pytest

from millrace.testing.apache_kafka import ApacheKafka
from millrace.testing.standalone_spark import StandaloneSpark

from ... import jvm


@pytest.fixture(scope="package")
def cluster() -> Iterator[StandaloneSpark]:
    with StandaloneSpark(workers=2, start_timeout_seconds=180) as running:
        yield running


@pytest.fixture(scope="package")
def kafka() -> Iterator[ApacheKafka]:
    with ApacheKafka(jvm_options=jvm.BROKER, start_timeout_seconds=180) as running:
        yield running
