"""The standalone cluster for tests: its processes start, answer and stop."""

import os
from pathlib import Path

import pytest

from millrace.testing.standalone_spark import StandaloneSpark

pytestmark = pytest.mark.java


def test_a_failing_start_says_why_and_leaves_no_process(tmp_path: Path) -> None:
    cluster = StandaloneSpark(workers=1, memory="little", directory=tmp_path)
    with pytest.raises(RuntimeError, match=r"worker-\d+ stopped while starting"):
        cluster.start()
    assert cluster.pids == []


def test_nothing_is_left_when_the_cluster_stops() -> None:
    with StandaloneSpark(workers=1) as cluster:
        pids, directory = cluster.pids, cluster.directory
        assert cluster.state()["status"] == "ALIVE"
        cluster.kill_worker()
        cluster.add_worker()
        assert len(cluster.pids) == 2
        pids += cluster.pids
    assert not directory.exists()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
