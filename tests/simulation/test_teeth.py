"""The simulation finds the mistakes that others made: each is put back, and some seed has to notice."""

from collections.abc import Callable

import pytest

from millrace.cluster import leadership
from millrace.cluster.leadership import Electorate
from millrace.replication.followers import Followers
from millrace.replication.partition import Partition

from .cluster import SimulatedCluster, Violation

SEEDS = 1500
STEPS = 400

Mistake = Callable[[pytest.MonkeyPatch], None]


def count_only_the_known_isr(patch: pytest.MonkeyPatch) -> None:
    """A proposal under way does not count (KIP-497)."""
    patch.setattr(Followers, "awaited", property(lambda followers: followers.in_sync))


def commit_below_min_isr(patch: pytest.MonkeyPatch) -> None:
    """The high watermark moves below min.insync.replicas, while replicas stay eligible (KAFKA-15583)."""
    patch.setattr(
        Partition,
        "_advance_high_watermark",
        lambda self: self._commit_up_to(self._followers.committed_end(self.log.log_end_offset)),
    )


def keep_what_diverges(patch: pytest.MonkeyPatch) -> None:
    """A follower trusts its log as far as the leader's is long (KIP-101)."""
    patch.setattr(Partition, "divergence", lambda self, epoch, end_offset: end_offset)


def elect_anybody(patch: pytest.MonkeyPatch) -> None:
    """A replica that is not in sync may lead."""
    original = leadership.settled

    def settled(state: leadership.PartitionState, electorate: Electorate) -> leadership.PartitionState:
        return original(state, Electorate(electorate.epochs, electorate.stopping, 1, allows_unclean=True))

    patch.setattr(leadership, "settled", settled)


@pytest.mark.parametrize(
    "mistake",
    [
        count_only_the_known_isr,
        commit_below_min_isr,
        keep_what_diverges,
        elect_anybody,
    ],
    ids=lambda mistake: mistake.__name__,
)
def test_a_mistake_is_found(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    for seed in range(SEEDS):
        cluster = SimulatedCluster(seed)
        try:
            cluster.run(STEPS)
            cluster.heal()
            cluster.check_end()
        except (Violation, AssertionError):
            return
    raise AssertionError("no seed notices")
