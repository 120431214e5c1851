"""The point-to-point example: one group shares the work."""

from examples.point_to_point import share

from millrace.testing import Broker


def test_each_job_is_done_once_and_every_worker_has_some() -> None:
    with Broker({"group.initial.rebalance.delay.ms": "300"}) as broker:
        done = share(broker.bootstrap, job_count=40, worker_count=3)
        assert sorted(job for jobs in done.values() for job in jobs) == sorted(f"job {n}" for n in range(40))
        assert all(done.values())
        again = share(broker.bootstrap, job_count=4, worker_count=1)
    assert sorted(again["worker-1"]) == [f"job {number}" for number in range(4)]
