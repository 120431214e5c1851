"""The standalone cluster for tests; tests/pipelines/cluster uses it, and checks that nothing is left."""

from pathlib import Path

import pytest

from millrace.testing.standalone_spark import StandaloneSpark

pytestmark = pytest.mark.java


def test_failing_start_is_explained_and_leaves_no_process(tmp_path: Path) -> None:
    cluster = StandaloneSpark(workers=1, memory="little", directory=tmp_path)
    with pytest.raises(RuntimeError, match=r"worker-\d+ stopped while starting"):
        cluster.start()
    assert cluster.pids == []
