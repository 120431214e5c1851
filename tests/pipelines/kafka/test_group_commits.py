"""Offsets of queries, committed to consumer groups in the background."""

from millrace.errors import Error
from millrace.pipelines.kafka import offsets
from millrace.pipelines.kafka.group_commits import GroupCommits
from millrace.testing import Broker, fail

from ...waiting import until
from ..log_client import create


def test_committed_offsets_are_read_back_and_other_partitions_are_left_out(broker: Broker) -> None:
    create(broker.bootstrap, "clicks", partitions=2)
    commits = GroupCommits(broker.bootstrap)
    commits.put("readers", {"clicks": {0: 2}})
    commits.close()
    assert offsets.group_offsets(broker.bootstrap, "readers", ["clicks"]) == {"clicks": {0: 2}}


def test_failed_commit_is_retried_when_the_broker_is_back() -> None:
    with Broker() as broker:
        create(broker.bootstrap, "numbers")
        commits = GroupCommits(broker.bootstrap)
        broker.stop()
        commits.put("readers", {"numbers": {0: 7}})
        broker.start()
        until(lambda: offsets.group_offsets(broker.bootstrap, "readers", ["numbers"]) != {})
        commits.close()
        assert offsets.group_offsets(broker.bootstrap, "readers", ["numbers"]) == {"numbers": {0: 7}}


def test_last_commit_is_retried_while_the_coordinator_is_loading(broker: Broker) -> None:
    create(broker.bootstrap, "views")
    broker.on("OffsetCommit", fail(Error.COORDINATOR_LOAD_IN_PROGRESS, times=2))
    commits = GroupCommits(broker.bootstrap)
    commits.put("viewers", {"views": {0: 3}})
    commits.close()
    assert offsets.group_offsets(broker.bootstrap, "viewers", ["views"]) == {"views": {0: 3}}
