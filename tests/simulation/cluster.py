"""Three or four simulated brokers that replicate one partition, under faults that a seed chooses. No I/O.

Real are the parts that decide: the controller's rules (`leadership`), the leader's and followers' halves of
replication (`Partition`, `Followers`, `following`). Simulated are the log, the network, the store and time.
Messages arrive late, in any order, or never; processes stop and go on, die and return; sessions expire at
brokers that believe in them. After every step the invariants are checked.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from millrace.cluster import leadership
from millrace.cluster.image import NO_LEADER, PartitionState
from millrace.cluster.leadership import Electorate
from millrace.config import LogConfig
from millrace.errors import Error, KafkaError
from millrace.replication import following
from millrace.replication.following import EpochEnd, FetchPosition
from millrace.replication.partition import IsrProposal, Partition, Role
from millrace.storage.log import Log

from .memory_log import MemoryLog

MAX_LAG = 30
FETCH_RECORDS = 3


class Violation(AssertionError):
    """An invariant of replication does not hold."""


class Deposed(Exception):
    """A write of a controller that another one has replaced."""


class View(NamedTuple):
    """The metadata that a controller publishes: what a broker acts on."""

    controller_epoch: int
    number: int
    epochs: dict[int, int]
    """The brokers that may join an ISR."""
    state: PartitionState


class Store:
    """The ensemble: sessions, the controller's seat, and the state of the partition."""

    def __init__(self, state: PartitionState) -> None:
        self.zxid = 0
        self.epochs: dict[int, int] = {}
        self.controller: int | None = None
        self.controller_epoch = 0
        self.state = state

    def register(self, broker: int) -> int:
        self.zxid += 1
        self.epochs[broker] = self.zxid
        return self.zxid

    def expire(self, broker: int) -> None:
        self.epochs.pop(broker, None)
        if self.controller == broker:
            self.controller = None

    def campaign(self, broker: int) -> int | None:
        if self.controller is not None or broker not in self.epochs:
            return None
        self.controller, self.controller_epoch = broker, self.controller_epoch + 1
        return self.controller_epoch

    def write(self, controller_epoch: int, state: PartitionState) -> None:
        if controller_epoch != self.controller_epoch:
            raise Deposed
        if state.partition_epoch != self.state.partition_epoch + 1:
            raise Violation(f"a write skips a version: {self.state} -> {state}")
        if not state.isr or not set(state.isr) <= set(state.replicas):
            raise Violation(f"an impossible ISR: {state}")
        if state.leader_epoch < self.state.leader_epoch:
            raise Violation(f"the leader epoch goes back: {self.state} -> {state}")
        before = (self.state.leader, self.state.leader_broker_epoch)
        if (state.leader, state.leader_broker_epoch) != before and (
            state.leader_epoch == self.state.leader_epoch
        ):
            raise Violation(f"two leaders in one epoch: {self.state} -> {state}")
        self.state = state


@dataclass
class Control:
    """A broker's work as the controller, as it believes."""

    controller_epoch: int
    number: int
    state: PartitionState
    epochs: dict[int, int]
    stopping: set[int] = field(default_factory=set)


class Broker:
    """A process, and the disk that outlives it."""

    def __init__(self, number: int, log: MemoryLog) -> None:
        self.number = number
        self.log = log
        self.checkpoint = 0
        """The high watermark that is on disk."""
        self.life = 0
        self.is_up = False
        self.is_paused = False
        self.epoch = -1
        self.partition: Partition
        self.view: View | None = None
        self.control: Control | None = None
        self.is_fetching = False
        self.checked = 0

    def start(self) -> None:
        self.life += 1
        self.is_up, self.is_paused, self.epoch = True, False, -1
        self.log.set_high_watermark(min(self.checkpoint, self.log.log_end_offset))
        self.partition = Partition("t", b"t" * 16, 0, cast("Log", self.log))
        self.view, self.control = None, None
        self.is_fetching, self.checked = False, 0

    @property
    def runs(self) -> bool:
        return self.is_up and not self.is_paused


@dataclass
class Message:
    """On its way; `act` is the receiver's handling of it."""

    receiver: Broker
    life: int
    act: Callable[[], None]


class SimulatedCluster:
    """One seed's history."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        count = self.random.choice((3, 3, 4))
        self.config = LogConfig(min_insync_replicas=self.random.choice((1, 2, 2)))
        replicas = tuple(self.random.sample(range(1, count + 1), 3))
        self.store = Store(PartitionState(replicas, NO_LEADER, 0, replicas))
        self.brokers = {number: Broker(number, MemoryLog(self.config)) for number in range(1, count + 1)}
        self.messages: list[Message] = []
        self.now = 0.0
        self.values = 0
        self.committed: list[tuple[int, int]] = []
        self.led: dict[int, tuple[int, int]] = {}
        self.acknowledged = 0
        for broker in self.brokers.values():
            broker.start()

    # Running

    def run(self, steps: int) -> None:
        actions: list[tuple[float, Callable[[], None]]] = [
            (60, self.deliver),
            (1, self.lose),
            (20, self.produce),
            (24, self.fetch),
            (8, self.poll),
            (6, self.control),
            (6, self.change_isr),
            (4, self.register),
            (1.5, self.kill),
            (1.5, self.pause),
            (4, self.recover),
            (1, self.expire),
            (12, self.lapse),
            (0.5, self.reassign),
            (0.8, self.prefer),
            (0.3, self.stop),
            (2, self.checkpoint),
            (10, self.calm),
        ]
        chosen = self.random.choices([act for _, act in actions], [weight for weight, _ in actions], k=steps)
        for act in chosen:
            self.now += self.random.random()
            act()
            self.check()

    def heal(self) -> None:
        """Let every broker come back and catch up; it must end with all of them in sync."""
        leaving = {
            number
            for broker in self.brokers.values()
            if broker.control is not None
            for number in broker.control.stopping
        }
        for broker in self.brokers.values():
            broker.is_paused = False
            if not broker.is_up or broker.number in leaving:
                broker.start()
            if self.store.epochs.get(broker.number) != broker.epoch:
                self.store.expire(broker.number)
        for _ in range(400):
            self.now += 0.2
            for act in (self.register_all, self.control_all, self.poll_all, self.fetch_all, self.isr_all):
                act()
                while self.messages:
                    self.messages.pop(0).act()
                    self.check()
            if self.is_whole():
                return
        raise Violation(f"does not heal: {self.store.state} {self.store.epochs}")

    def calm(self) -> None:
        """For some moments, what can run runs."""
        for _ in range(self.random.randint(1, 6)):
            self.now += 0.5
            for broker in self.brokers.values():
                self._register(broker)
                self._control(broker)
                self._poll(broker)
                self._fetch(broker)
                self._change_isr(broker)
            self.produce()
            waiting, self.messages = self.messages, []
            for message in waiting:
                if message.receiver.life != message.life or not message.receiver.is_up:
                    continue
                if message.receiver.is_paused or self.random.random() < 0.1:
                    self.messages.append(message)
                else:
                    message.act()
            self.check()

    def is_whole(self) -> bool:
        state = self.store.state
        ends = {self.brokers[replica].log.log_end_offset for replica in state.replicas}
        return (
            state.leader != NO_LEADER
            and set(state.isr) == set(state.replicas)
            and not state.adding
            and ends == {self.brokers[state.leader].log.high_watermark}
        )

    def one(self) -> Broker:
        return self.random.choice(list(self.brokers.values()))

    def send(self, receiver: Broker, act: Callable[[], None]) -> None:
        if receiver.is_up:
            self.messages.append(Message(receiver, receiver.life, act))

    def deliver(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            if not self.messages:
                return
            place = self.random.randrange(len(self.messages))
            message = self.messages[place]
            if message.receiver.life != message.life or not message.receiver.is_up:
                del self.messages[place]
            elif not message.receiver.is_paused:
                del self.messages[place]
                message.act()

    def lose(self) -> None:
        if self.messages:
            self.messages.pop(self.random.randrange(len(self.messages)))
            for broker in self.brokers.values():
                # The request times out, and its connection is closed.
                broker.is_fetching = False

    # Faults

    def kill(self) -> None:
        self.one().is_up = False

    def pause(self) -> None:
        self.one().is_paused = True

    def recover(self) -> None:
        broker = self.one()
        if not broker.is_up:
            broker.start()
        broker.is_paused = False

    def expire(self) -> None:
        """End a session, whether or not its broker is alive and knows."""
        self.store.expire(self.one().number)

    def lapse(self) -> None:
        """End the session of a broker that does not answer."""
        broker = self.one()
        if not broker.runs:
            self.store.expire(broker.number)

    def checkpoint(self) -> None:
        broker = self.one()
        if broker.runs:
            broker.checkpoint = broker.log.high_watermark

    # Membership and the controller

    def register(self) -> None:
        self._register(self.one())

    def register_all(self) -> None:
        for broker in self.brokers.values():
            self._register(broker)

    def _register(self, broker: Broker) -> None:
        """A broker whose session is over begins another one, and is a new member of the cluster."""
        if not broker.runs or self.store.epochs.get(broker.number) == broker.epoch:
            return
        if broker.epoch != -1:
            # It has noticed: what it was told under the former session does not hold.
            broker.control = None
        self.store.expire(broker.number)
        broker.epoch = self.store.register(broker.number)

    def control(self) -> None:
        self._control(self.one())

    def control_all(self) -> None:
        for broker in self.brokers.values():
            self._control(broker)

    def _control(self, broker: Broker) -> None:
        if not broker.runs:
            return
        if broker.control is None:
            controller_epoch = self.store.campaign(broker.number)
            if controller_epoch is None:
                return
            state, epochs = self.store.state, dict(self.store.epochs)
            broker.control = Control(controller_epoch, 0, state, epochs)
            self._settle(broker, broker.control, set())
        else:
            control = broker.control
            before = control.epochs
            control.epochs = dict(self.store.epochs)
            returned = {
                number for number, epoch in control.epochs.items() if before.get(number, epoch) != epoch
            }
            control.stopping = {
                number for number in control.stopping if before.get(number) == control.epochs.get(number)
            }
            self._settle(broker, control, returned)

    def _electorate(self, control: Control) -> Electorate:
        return Electorate(control.epochs, control.stopping, self.config.min_insync_replicas)

    def _settle(self, broker: Broker, control: Control, returned: set[int]) -> None:
        electorate = self._electorate(control)
        self._write(broker, control, leadership.settled_after(control.state, electorate, returned))

    def _write(self, broker: Broker, control: Control, state: PartitionState) -> bool:
        if state != control.state:
            try:
                self.store.write(control.controller_epoch, state)
            except Deposed:
                broker.control = None
                return False
            control.state = state
        control.number += 1
        return True

    def reassign(self) -> None:
        broker = self.one()
        if not broker.runs or broker.control is None:
            return
        target = tuple(self.random.sample(sorted(self.brokers), self.random.choice((2, 3))))
        try:
            state = leadership.reassigning(broker.control.state, target, self._electorate(broker.control))
        except KafkaError:
            return
        self._write(broker, broker.control, state)

    def prefer(self) -> None:
        broker = self.one()
        if broker.runs and broker.control is not None:
            electorate = self._electorate(broker.control)
            self._write(broker, broker.control, leadership.preferred(broker.control.state, electorate))

    def stop(self) -> None:
        """A controlled shutdown: the controller moves the leaders away, then the broker goes."""
        broker = self.one()
        if broker.runs and broker.control is not None:
            leaving = self.one()
            broker.control.stopping.add(leaving.number)
            self._settle(broker, broker.control, set())

    def poll(self) -> None:
        self._poll(self.one())

    def poll_all(self) -> None:
        for broker in self.brokers.values():
            self._poll(broker)

    def _poll(self, broker: Broker) -> None:
        """Ask the controller that the store names for its newest view."""
        controller = self.brokers.get(self.store.controller or -1)
        if not broker.runs or controller is None:
            return
        epoch = broker.epoch

        def answer() -> None:
            control = controller.control
            # A broker is told nothing before the controller knows this life of it.
            if control is None or control.epochs.get(broker.number) != epoch:
                return
            able = {number: life for number, life in control.epochs.items() if number not in control.stopping}
            view = View(control.controller_epoch, control.number, able, control.state)
            self.send(broker, lambda: self._apply(broker, epoch, view))

        self.send(controller, answer)

    def _apply(self, broker: Broker, epoch: int, view: View) -> None:
        known = broker.view
        if epoch != broker.epoch or (known is not None and view[:2] <= known[:2]):
            return
        broker.view = view
        state, partition = view.state, broker.partition
        if state.leader == broker.number and broker.number in state.replicas:
            partition.become_leader(
                state.leader_epoch,
                state.replicas,
                state.isr,
                node_id=broker.number,
                partition_epoch=state.partition_epoch,
                now=self.now,
            )
            owner = self.led.setdefault(state.leader_epoch, (broker.number, broker.life))
            if owner != (broker.number, broker.life):
                raise Violation(f"{owner} and {broker.number} lead in epoch {state.leader_epoch}")
        elif broker.number in state.replicas:
            partition.become_follower(state.leader_epoch, state.leader)
        elif partition.role is not Role.OFFLINE or broker.log.records:
            partition.resign()
            broker.log.truncate_to(0)
            broker.checkpoint = broker.checked = 0

    # Replication

    def fetch(self) -> None:
        self._fetch(self.one())

    def fetch_all(self) -> None:
        for broker in self.brokers.values():
            broker.is_fetching = False
            self._fetch(broker)

    def _fetch(self, broker: Broker) -> None:
        if not broker.runs or broker.is_fetching or broker.partition.role is not Role.FOLLOWER:
            return
        leader = self.brokers.get(broker.partition.leader)
        if leader is None:
            return
        asked = following.position_of(broker.partition)
        broker.is_fetching = True
        epoch = broker.epoch
        self.send(leader, lambda: self._serve(leader, broker, epoch, asked))

    def _serve(self, leader: Broker, follower: Broker, epoch: int, asked: FetchPosition) -> None:
        partition = leader.partition
        records, diverging = b"", None
        try:
            if partition.role is not Role.LEADER:
                raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
            partition.check_leader_epoch(asked.leader_epoch)
            if asked.last_epoch != following.NO_EPOCH:
                known, end = partition.epoch_end_offset(asked.last_epoch)
                if known < 0:
                    raise KafkaError(Error.OFFSET_OUT_OF_RANGE)
                if known < asked.last_epoch or end < asked.offset:
                    diverging = EpochEnd(known, end)
            if diverging is None:
                partition.record_fetch(follower.number, asked.offset, now=self.now, broker_epoch=epoch)
                records = leader.log.read(asked.offset, self.random.randint(0, FETCH_RECORDS))
        except KafkaError:
            self.send(follower, lambda: self._end_fetch(follower))
            return
        watermark = partition.high_watermark
        self.send(follower, lambda: self._take(follower, asked, records, watermark, diverging))

    def _end_fetch(self, follower: Broker) -> None:
        follower.is_fetching = False

    def _take(
        self,
        follower: Broker,
        asked: FetchPosition,
        records: bytes,
        high_watermark: int,
        diverging: EpochEnd | None,
    ) -> None:
        if not follower.is_fetching:
            # Its connection is closed.
            return
        follower.is_fetching = False
        try:
            following.take(
                follower.partition,
                asked,
                records=memoryview(records),
                high_watermark=high_watermark,
                diverging=diverging,
                truncate=lambda partition, offset: partition.truncate_to(offset),
            )
        except KafkaError as error:
            if error.error is not Error.FENCED_LEADER_EPOCH:
                raise

    def change_isr(self) -> None:
        self._change_isr(self.one())

    def isr_all(self) -> None:
        for broker in self.brokers.values():
            self._change_isr(broker)

    def _change_isr(self, broker: Broker) -> None:
        if not broker.runs or broker.partition.role is not Role.LEADER:
            return
        able = {} if broker.view is None else broker.view.epochs
        proposal = broker.partition.propose_isr(
            self.now, MAX_LAG, lambda replica, epoch: able.get(replica) == epoch
        )
        if proposal is None:
            # It is sent again until it is answered.
            proposal = broker.partition.pending_isr
        controller = self.brokers.get(self.store.controller or -1)
        if proposal is None or controller is None:
            return
        self.send(controller, lambda: self._alter(controller, broker, broker.epoch, proposal))

    def _alter(self, controller: Broker, leader: Broker, epoch: int, proposal: IsrProposal) -> None:
        control = controller.control
        if control is None or control.epochs.get(leader.number) != epoch:
            return
        try:
            state = leadership.altered(
                control.state,
                self._electorate(control),
                leader=leader.number,
                leader_epoch=proposal.leader_epoch,
                partition_epoch=proposal.partition_epoch,
                in_sync={leader.number: epoch, **proposal.followers},
            )
        except KafkaError as error:
            if error.error is Error.INELIGIBLE_REPLICA:
                self.send(leader, lambda: leader.partition.withdraw_isr(proposal))
            return
        self._write(controller, control, state)

    def produce(self) -> None:
        broker = self.one()
        partition = broker.partition
        if not broker.runs or partition.role is not Role.LEADER or partition.lacks_replicas:
            return
        self.values += 1
        record = (partition.leader_epoch, self.values)
        offset = partition.append_as_leader(memoryview(self.values.to_bytes(4))).base_offset

        def acknowledged(failure: Any) -> None:
            if failure is None:
                self.acknowledged += 1
                self._commit(offset, record)

        partition.committed(offset + 1).then(acknowledged)

    # Invariants

    def _commit(self, offset: int, record: tuple[int, int]) -> None:
        if offset < len(self.committed):
            if self.committed[offset] != record:
                raise Violation(f"offset {offset} was {self.committed[offset]}, is {record}")
        elif offset == len(self.committed):
            self.committed.append(record)

    def check(self) -> None:
        """No committed record is lost or changed, and no watermark of a live broker goes back."""
        for broker in self.brokers.values():
            if not broker.is_up:
                continue
            watermark = broker.log.high_watermark
            if broker.partition.role is Role.OFFLINE:
                continue
            if watermark < broker.checked:
                raise Violation(f"the watermark of {broker.number} went from {broker.checked} to {watermark}")
            for offset in range(broker.checked, watermark):
                self._commit(offset, broker.log.records[offset])
            broker.checked = watermark

    def check_end(self) -> None:
        """After everything has healed, each replica has every committed record."""
        for replica in self.store.state.replicas:
            records = self.brokers[replica].log.records
            if records[: len(self.committed)] != self.committed:
                raise Violation(f"replica {replica} lacks committed records")
