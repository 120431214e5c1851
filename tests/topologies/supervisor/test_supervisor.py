"""Submitted topologies: real supervisors, drivers and workers over a real broker."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from millrace.testing import Broker
from millrace.topologies.model.errors import TopologyError
from millrace.topologies.supervisor import submission
from millrace.topologies.supervisor.records import JOBS

from ...waiting import until
from .word_counts import Platform, counts_of, kill, submitted, topology_file, write_sentences


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"num.partitions": "4"}) as broker:
        yield broker


@pytest.fixture(scope="module")
def platform(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    platform = Platform(broker, tmp_path_factory.mktemp("platform"))
    try:
        yield platform
    finally:
        platform.close()


def test_a_topology_is_submitted_rebalanced_and_killed(
    platform: Platform, broker: Broker, tmp_path: Path
) -> None:
    expected = write_sentences(broker, 1, 200)
    with submitted(platform, topology_file(tmp_path, 1), "first") as job:
        until(lambda: platform.state("first") == "ACTIVE")
        until(lambda: counts_of(broker, 1) == (dict(expected), 1600))
        submission.rebalance(platform.board, job, workers=3)
        until(lambda: (status := platform.status("first")) is not None and status.workers_up == 3)
        expected += write_sentences(broker, 1, 100, seed=1)
        until(lambda: counts_of(broker, 1) == (dict(expected), 2400))
        kill(platform, "first")


def test_an_inactive_topology_reads_nothing_until_it_is_activated(
    platform: Platform, broker: Broker, tmp_path: Path
) -> None:
    expected = write_sentences(broker, 2, 50)
    with submitted(platform, topology_file(tmp_path, 2), "second", workers=1) as job:
        until(lambda: counts_of(broker, 2) == (dict(expected), 400))
        submission.deactivate(platform.board, job)
        until(lambda: platform.state("second") == "INACTIVE")
        # The workers follow the control topic, which the status is written after.
        before = counts_of(broker, 2)
        expected += write_sentences(broker, 2, 50, seed=1)
        assert counts_of(broker, 2) == before
        submission.activate(platform.board, platform.job("second"))
        until(lambda: counts_of(broker, 2) == (dict(expected), 800))


def test_topologies_outlive_their_supervisor_and_are_found_again(
    platform: Platform, broker: Broker, tmp_path: Path
) -> None:
    expected = write_sentences(broker, 3, 50)
    with submitted(platform, topology_file(tmp_path, 3), "third", workers=1):
        until(lambda: counts_of(broker, 3) == (dict(expected), 400))
        driver = platform.pid("third")
        platform.process.kill()
        platform.process.wait()
        expected += write_sentences(broker, 3, 50, seed=1)
        until(lambda: counts_of(broker, 3) == (dict(expected), 800))
        platform.start()
        # A command that the new supervisor's driver alone could not follow: the old one still does.
        submission.rebalance(platform.board, platform.job("third"), workers=2)
        until(lambda: (status := platform.status("third")) is not None and status.workers_up == 2)
        assert platform.pid("third") == driver


def test_a_killed_driver_starts_again_and_goes_on(platform: Platform, broker: Broker, tmp_path: Path) -> None:
    expected = write_sentences(broker, 4, 50)
    with submitted(platform, topology_file(tmp_path, 4), "fourth", workers=1):
        until(lambda: counts_of(broker, 4) == (dict(expected), 400))
        driver = platform.pid("fourth")
        os.kill(driver, signal.SIGKILL)
        until(lambda: platform.pid("fourth") != driver and platform.state("fourth") == "ACTIVE")
        expected += write_sentences(broker, 4, 50, seed=1)
        until(lambda: counts_of(broker, 4) == (dict(expected), 800))


def test_a_topology_that_cannot_start_is_reported_and_not_tried_again(
    platform: Platform, broker: Broker, tmp_path: Path
) -> None:
    path = topology_file(tmp_path, 5)
    write_sentences(broker, 5, 1)
    marker = tmp_path / "here"
    marker.touch()
    check = f"import os\nif not os.path.exists({str(marker)!r}):\n    raise ValueError('not here')\n"
    path.write_text(check + path.read_text())
    package = submission.Package(path, name="fifth")
    marker.unlink()
    job = submission.submit(platform.board, package, spark=False)
    until(lambda: platform.state("fifth") == "FAILED")
    status = platform.status("fifth")
    assert status is not None and status.error is not None
    assert status.error.endswith("cannot be imported: ValueError: not here")
    # A change of the job is worth another try.
    marker.touch()
    submission.rebalance(platform.board, job)
    until(lambda: platform.state("fifth") == "ACTIVE")
    kill(platform, "fifth")


def test_new_code_goes_on_with_the_state_of_the_old(
    platform: Platform, broker: Broker, tmp_path: Path
) -> None:
    expected = write_sentences(broker, 6, 50)
    path = topology_file(tmp_path, 6)
    with submitted(platform, path, "sixth", workers=1) as job:
        until(lambda: counts_of(broker, 6) == (dict(expected), 400))
        path.write_text(path.read_text().replace('tup["value"].split()', 'tup["value"].upper().split()'))
        changed = submission.update(platform.board, job, submission.Package(path, name="sixth"))
        until(
            lambda: (
                (status := platform.status("sixth")) is not None
                and status.generation == changed.generation
                and status.state == "ACTIVE"
            )
        )
        loud = write_sentences(broker, 6, 10, seed=1)
        for word, count in loud.items():
            expected[word.upper()] += count
        until(lambda: counts_of(broker, 6) == (dict(expected), 480))


def test_new_code_that_would_lose_state_is_refused(
    platform: Platform, broker: Broker, tmp_path: Path
) -> None:
    write_sentences(broker, 7, 1)
    path = topology_file(tmp_path, 7)
    with submitted(platform, path, "seventh", workers=1) as job:
        path.write_text(
            path.read_text().replace('Grouping.fields("word")}, par=4', 'Grouping.fields("word")}, par=5')
        )
        with pytest.raises(TopologyError, match="count had 4 tasks and now has 5: keys would move"):
            submission.update(platform.board, job, submission.Package(path, name="seventh"))


def test_a_job_that_is_not_signed_is_ignored_and_reported(platform: Platform, broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(JOBS, b"{}", b"evil", 0)
    producer.flush(30)
    until(lambda: platform.status("evil") is None and platform.board.ignored)
    assert "evil" not in platform.board.jobs
    assert "(evil): a record without a valid signature" in platform.board.ignored[-1]
