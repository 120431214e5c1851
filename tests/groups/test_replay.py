"""The coordinator's state is what its log says: replaying the log gives the same groups, at any time."""

from pathlib import Path

import pytest

from . import test_classic_simulation as classic
from . import test_consumer_mixed_simulation as mixed
from . import test_consumer_simulation as consumer
from .conftest import NewMember
from .group_state import live_state, replayed_state, unstable
from .members import Coordinator

STEPS = 150


def check(coordinator: Coordinator) -> None:
    live, replayed = live_state(coordinator), replayed_state(coordinator)
    for group_id in unstable(coordinator):
        live.pop(group_id), replayed.pop(group_id)
    assert live == replayed


@pytest.mark.parametrize("seed", range(10))
def test_replaying_the_log_gives_the_present_classic_groups(tmp_path: Path, seed: int) -> None:
    simulation = classic.Simulation(tmp_path / "data", seed)
    was_stable = 0
    for _ in range(STEPS):
        simulation.step()
        was_stable += not unstable(simulation.coordinator)
        check(simulation.coordinator)
    assert was_stable
    simulation.coordinator.kill()


@pytest.mark.parametrize("seed", range(6))
def test_replaying_the_log_gives_the_present_consumer_groups(tmp_path: Path, seed: int) -> None:
    life = consumer.Life(tmp_path / "data", seed)
    life.check = lambda: check(life.coordinator)
    life.live()
    life.coordinator.kill()


@pytest.mark.parametrize("seed", range(4))
def test_replaying_the_log_gives_the_present_mixed_groups(tmp_path: Path, seed: int) -> None:
    life = mixed.Life(tmp_path / "data", seed)
    life.check = lambda: check(life.coordinator)
    life.live()
    life.coordinator.kill()


def test_a_static_member_that_cannot_be_recorded_changes_nothing(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    first, second = new_member(instance="one"), new_member(instance="two")
    coordinator.stabilize(first, second)
    before, timers = live_state(coordinator), len(coordinator.timers)
    restarted = new_member(instance="one")
    coordinator.disk.fail_next_write()
    assert restarted.join().error
    assert live_state(coordinator) == before == replayed_state(coordinator)
    assert len(coordinator.timers) == timers
    assert not first.heartbeat()
    again = new_member(instance="one")
    assert not again.join().error
    assert live_state(coordinator) == replayed_state(coordinator) != before
