"""Three broker processes and ZooKeeper under kill -9 and SIGSTOP: no acknowledged record is lost."""

import pytest

from millrace.testing.cluster import ClusterProcesses

from .chaos import Chaos, Load, check_records, check_replicas, read_all

PROPERTIES = {"replica.lag.time.max.ms": "3000"}


def run(seed: int, rounds: int) -> None:
    with ClusterProcesses(3, PROPERTIES) as cluster:
        chaos = Chaos(cluster, seed)
        chaos.create_topic()
        load = Load(cluster.bootstrap)
        load.start()
        try:
            chaos.run(rounds)
        finally:
            load.stop()
        chaos.wait_until_whole()
        found = read_all(cluster.bootstrap)
        check_records(load, found)
        assert len(load.acknowledged) > 100
        assert load.failed == 0
        for broker in cluster.brokers.values():
            broker.stop()
        check_replicas([broker.data_dir for broker in cluster.brokers.values()])


@pytest.mark.java
@pytest.mark.slow
def test_acknowledged_records_survive_kills_and_pauses() -> None:
    run(seed=1, rounds=4)


@pytest.mark.java
@pytest.mark.proof
@pytest.mark.parametrize("seed", range(2, 8))
def test_acknowledged_records_survive_many_kills_and_pauses(seed: int) -> None:
    run(seed, rounds=12)
