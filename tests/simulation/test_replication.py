"""Replication and its controller under thousands of histories of faults, without I/O."""

import pytest

from .cluster import SimulatedCluster

STEPS = 400
BATCHES = 10


def run(seed: int) -> SimulatedCluster:
    cluster = SimulatedCluster(seed)
    try:
        cluster.run(STEPS)
        cluster.heal()
        cluster.check_end()
    except Exception as failure:
        failure.add_note(f"seed {seed}")
        raise
    return cluster


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_history_of_faults_loses_a_committed_record(batch: int) -> None:
    clusters = [run(seed) for seed in range(batch * 40, batch * 40 + 40)]
    # The histories are worth something: records are acknowledged and leaders change.
    assert sum(cluster.acknowledged for cluster in clusters) > 400
    assert sum(len(cluster.led) for cluster in clusters) > 100


@pytest.mark.soak
@pytest.mark.parametrize("batch", range(100))
def test_no_history_of_many_loses_a_committed_record(batch: int) -> None:
    for seed in range(1000 + batch * 100, 1100 + batch * 100):
        run(seed)
