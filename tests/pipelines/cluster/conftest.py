"""A Spark cluster and an Apache Kafka broker, in their own processes, for all tests of this folder."""

import os
from collections.abc import Iterator

import pytest

from millrace.testing.apache_kafka import ApacheKafka
from millrace.testing.standalone_spark import StandaloneSpark

from ... import jvm


@pytest.fixture(scope="package")
def cluster() -> Iterator[StandaloneSpark]:
    """A cluster whose workers are killed and added by tests; nothing of it may be left at the end."""
    with StandaloneSpark(workers=2, start_timeout_seconds=180) as running:
        yield running
        pids, directory = running.pids, running.directory
        assert len(pids) == 3
    assert not directory.exists()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.fixture(scope="package")
def kafka() -> Iterator[ApacheKafka]:
    with ApacheKafka(jvm_options=jvm.BROKER, start_timeout_seconds=180) as running:
        yield running
