"""Random lives of a classic group: members come, leave, die and return, writes fail, the broker crashes."""

import random
from pathlib import Path

import pytest

from millrace.errors import Error

from .members import INITIAL_DELAY_MS, REBALANCE_MS, SESSION_MS, Answer, Coordinator, Member

STEPS = 400
STEP_MS = 1_500


class Process:
    """A client with a loop of its own: it joins, syncs and heartbeats as real ones do."""

    def __init__(self, coordinator: Coordinator, instance: str | None) -> None:
        self.member = Member(coordinator, instance=instance)
        self.waiting: Answer | None = None
        self.wants_sync = False
        self.is_alive = True
        self.is_fenced = False

    @property
    def is_settled(self) -> bool:
        return self.waiting is None and not self.wants_sync and self.member.generation >= 0

    def step(self) -> None:
        """Do what comes next, if the last request has its answer."""
        if self.waiting is not None:
            if not self.waiting.arrived:
                return
            answer, self.waiting = self.waiting, None
            self._take(answer)
        elif self.member.generation < 0:
            self.waiting = self.member.join()
        elif self.wants_sync:
            self.waiting = self._sync()
        else:
            self._obey(self.member.heartbeat())

    def _sync(self) -> Answer:
        member = self.member
        if not member.is_leader:
            return member.sync()
        return member.sync({known: b"%d:" % member.generation + known.encode() for known in member.known})

    def _take(self, answer: Answer) -> None:
        if answer.error is Error.NONE:
            self.wants_sync = hasattr(answer.response, "generation") and not answer.response.skip_assignment
            if hasattr(answer.response, "assignment"):
                self.wants_sync = False
        elif answer.error is not Error.MEMBER_ID_REQUIRED:
            self._obey(answer.error)

    def _obey(self, error: Error) -> None:
        if error is Error.NONE:
            return
        if error is Error.FENCED_INSTANCE_ID:
            self.is_fenced = True
            self.is_alive = False
        if error is Error.UNKNOWN_MEMBER_ID:
            self.member.member_id = ""
        self.member.generation = -1
        self.wants_sync = False


class Simulation:
    def __init__(self, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.coordinator = Coordinator(directory)
        self.coordinator.groups.find("any group creates the internal topic")
        self.processes: list[Process] = []
        self.instances = 0

    def step(self) -> None:
        choice = self.random.random()
        if choice < 0.05 and len(self.processes) < 8:
            self.start(self.random.random() < 0.4)
        elif choice < 0.08 and self.processes:
            self.leave(self.random.choice(self.processes))
        elif choice < 0.10 and self.processes:
            self.processes.remove(self.random.choice(self.processes))
        elif choice < 0.12 and self.processes:
            self.replace(self.random.choice(self.processes))
        elif choice < 0.14:
            self.coordinator.disk.fill()
        elif choice < 0.15:
            self.crash()
        self.tick()
        self.coordinator.disk.free()

    def start(self, is_static: bool) -> None:
        self.instances += is_static
        name = f"instance-{self.instances}" if is_static else None
        self.processes.append(Process(self.coordinator, name))

    def leave(self, process: Process) -> None:
        if process.member.member_id:
            process.member.leave()
        self.processes.remove(process)

    def replace(self, process: Process) -> None:
        """Restart a process while the old one may still be running."""
        if process.member.instance is not None:
            self.processes.append(Process(self.coordinator, process.member.instance))

    def crash(self) -> None:
        self.coordinator.restart()
        for process in self.processes:
            # Whatever was asked of the old broker is lost with its connections.
            if process.waiting is not None and not process.waiting.arrived:
                process.waiting = None

    def tick(self) -> None:
        for process in self.random.sample(self.processes, len(self.processes)):
            process.step()
        self.processes = [process for process in self.processes if process.is_alive]
        self.coordinator.advance(STEP_MS)
        self.check()

    def check(self) -> None:
        group = self.coordinator.groups.find("readers")
        if group is None:
            return
        group = self.coordinator.group
        assert group.parked_joins.keys() <= group.members.keys()
        assert group.parked_syncs.keys() <= group.members.keys()
        assert group.unsynced <= group.members.keys()
        assert not group.pending & group.members.keys()
        assert (group.leader in group.members) if group.members else group.leader is None
        if group.state == "Stable":
            assert not group.parked_joins
            assert not group.parked_syncs
        elif group.state == "Empty":
            assert not group.members

    def settle(self) -> None:
        """Nothing more happens: all who are left must end up in one stable generation."""
        for _ in range((2 * REBALANCE_MS + SESSION_MS + INITIAL_DELAY_MS) // STEP_MS + 20):
            self.tick()


@pytest.mark.parametrize("seed", range(30))
def test_remaining_members_end_up_in_one_stable_generation(tmp_path: Path, seed: int) -> None:
    simulation = Simulation(tmp_path / "data", seed)
    try:
        for _ in range(STEPS):
            simulation.step()
        simulation.start(False)
        simulation.settle()
        group, processes = simulation.coordinator.group, simulation.processes
        assert group.state == "Stable"
        assert all(process.is_settled for process in processes)
        assert {process.member.member_id for process in processes} == set(group.members)
        assert {process.member.generation for process in processes} == {group.generation}
        for process in processes:
            assert process.member.assignment is not None
            assert process.member.assignment == group.members[process.member.member_id].assignment
    finally:
        simulation.coordinator.kill()
