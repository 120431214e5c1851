"""Submitted topologies: real supervisors, drivers and workers over a real broker."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from millrace.testing import Broker
from millrace.topologies.running import prepare
from millrace.topologies.runtime.control_writer import ControlWriter, Superseded
from millrace.topologies.supervisor import submission
from millrace.topologies.supervisor.keys import signing_key_file
from millrace.topologies.supervisor.members import running_supervisors
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


def test_a_topology_outlives_its_supervisor_and_its_driver(
    platform: Platform, broker: Broker, tmp_path: Path
) -> None:
    expected = write_sentences(broker, 1, 200)
    with submitted(platform, topology_file(tmp_path, 1), "lasting", workers=1):
        until(lambda: counts_of(broker, 1) == (dict(expected), 1600))
        driver = platform.pid("lasting")
        platform.process.kill()
        platform.process.wait()
        # Without a supervisor, the driver still follows its job.
        submission.rebalance(platform.board, platform.job("lasting"), workers=2)
        until(lambda: platform.workers_up("lasting") == 2)
        expected += write_sentences(broker, 1, 50, seed=1)
        until(lambda: counts_of(broker, 1) == (dict(expected), 2000))
        platform.start()
        assert platform.pid("lasting") == driver
        os.kill(driver, signal.SIGKILL)
        # The new supervisor has found the driver of the old one, and notices its end.
        until(lambda: platform.pid("lasting") != driver and platform.workers_up("lasting") == 2)
        expected += write_sentences(broker, 1, 50, seed=2)
        until(lambda: counts_of(broker, 1) == (dict(expected), 2400))


def test_an_inactive_topology_reads_nothing_and_new_code_keeps_the_state(
    platform: Platform, broker: Broker, tmp_path: Path
) -> None:
    expected = write_sentences(broker, 2, 50)
    path = topology_file(tmp_path, 2)
    with submitted(platform, path, "changing", workers=1) as job:
        until(lambda: counts_of(broker, 2) == (dict(expected), 400))
        submission.deactivate(platform.board, job)
        until(lambda: platform.state("changing") == "INACTIVE")
        path.write_text(path.read_text().replace('tup["value"].split()', 'tup["value"].upper().split()'))
        package = submission.Package(path, name="changing")
        changed = submission.update(platform.board, platform.job("changing"), package)
        until(lambda: platform.generation("changing", "INACTIVE") == changed.generation)
        for word, count in write_sentences(broker, 2, 50, seed=1).items():
            expected[word.upper()] += count
        # The new workers are up, and know that they are not to read.
        until(lambda: platform.workers_up("changing") == 1)
        assert sum(word.isupper() for word in counts_of(broker, 2)[0]) == 0
        submission.activate(platform.board, platform.job("changing"))
        until(lambda: counts_of(broker, 2) == (dict(expected), 800))


def test_a_topology_that_cannot_start_is_reported_and_not_tried_again(
    platform: Platform, broker: Broker, tmp_path: Path
) -> None:
    path = topology_file(tmp_path, 3)
    write_sentences(broker, 3, 1)
    marker = tmp_path / "here"
    marker.touch()
    check = f"import os\nif not os.path.exists({str(marker)!r}):\n    raise ValueError('not here')\n"
    path.write_text(check + path.read_text())
    package = submission.Package(path, name="broken")
    marker.unlink()
    job = submission.submit(platform.board, package, spark=False)
    until(lambda: platform.state("broken") == "FAILED")
    status = platform.status("broken")
    assert status is not None and status.error is not None
    assert status.error.endswith("cannot be imported: ValueError: not here")
    # A change of the job is worth another try.
    marker.touch()
    submission.rebalance(platform.board, job)
    until(lambda: platform.state("broken") == "ACTIVE")
    kill(platform, "broken")


def test_a_job_that_is_not_signed_is_ignored_and_reported(platform: Platform, broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(JOBS, b"{}", b"evil", 0)
    producer.flush(30)
    until(lambda: platform.status("evil") is None and platform.board.ignored)
    assert "evil" not in platform.board.jobs
    assert "(evil): a record without a valid signature" in platform.board.ignored[-1]


def test_a_second_driver_fences_the_first(broker: Broker, tmp_path: Path) -> None:
    write_sentences(broker, 4, 1)
    job = prepare(topology_file(tmp_path, 4), broker.bootstrap, name="fenced")
    first, second = (
        ControlWriter(job.name, bytes.fromhex(job.key), broker.bootstrap, job.client) for _ in range(2)
    )
    first.take_over()
    first.begin(job.plan(), 2)
    first.renew()
    second.take_over()
    with pytest.raises(Superseded, match="another driver runs fenced now"):
        first.renew()
    second.begin(job.plan(), 1)
    second.change(active=False)


@pytest.mark.proof
def test_another_supervisor_leads_when_the_first_one_is_killed(
    broker: Broker, platform: Platform, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(signing_key_file(platform.data_dir), signing_key_file(other))
    until(lambda: [member.leads for member in running_supervisors(broker.bootstrap)] == [True])
    standby = Platform(broker, other)
    try:
        until(lambda: [member.leads for member in running_supervisors(broker.bootstrap)] == [True, False])
        platform.process.kill()
        platform.process.wait()
        until(
            lambda: [member.pid for member in running_supervisors(broker.bootstrap)] == [standby.process.pid]
        )
        expected = write_sentences(broker, 5, 20)
        with submitted(standby, topology_file(tmp_path, 5), "moved", workers=1):
            until(lambda: counts_of(broker, 5) == (dict(expected), 160))
    finally:
        standby.close()
        platform.start()
