"""The controller's decisions about a partition: its leader, its replicas in sync, its reassignment. No I/O.

`settled` is level-triggered: it looks at the state of a partition and at the brokers that are alive, and says
what the state has to be. A dead leader, a broker that stops and a reassignment whose replicas have caught up
are the same question to it, asked again after every event.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from millrace.cluster.image import NO_EPOCH, NO_LEADER, PartitionState
from millrace.errors import Error, KafkaError


@dataclass(frozen=True, slots=True)
class Electorate:
    """The brokers as the controller sees them, and the rules of the partition's topic."""

    epochs: Mapping[int, int]
    """The live brokers, with the epoch of each registration."""
    stopping: Collection[int] = ()
    """Live brokers that are about to stop, and give up leadership before."""
    min_insync_replicas: int = 1
    allows_unclean: bool = False
    """Whether a replica that lacks committed records may lead rather than none."""

    def serves(self, broker: int, state: PartitionState) -> bool:
        """Whether a replica may lead and count as in sync."""
        return broker in self.epochs and broker not in self.stopping and broker not in state.offline

    def leads(self, state: PartitionState) -> bool:
        """Whether the leader is still there, in the life in which it was elected."""
        leader = state.leader
        return (
            leader in state.replicas
            and leader not in state.offline
            and self.epochs.get(leader) == state.leader_broker_epoch
        )


def settled(state: PartitionState, electorate: Electorate) -> PartitionState:
    """The state that a partition has to have; the same state if it has it already."""
    changed = _without_lost_replicas(_reassigned(state, electorate), electorate)
    return state if changed == state else changed._replace(partition_epoch=state.partition_epoch + 1)


def settled_after(state: PartitionState, electorate: Electorate, returned: Collection[int]) -> PartitionState:
    """The same where some brokers have died and come back: their logs may be shorter now (KIP-903).

    They leave the ISR, unless no other replica is left to lead.
    """
    if not any(broker in state.isr for broker in returned):
        return settled(state, electorate)
    epochs = {broker: epoch for broker, epoch in electorate.epochs.items() if broker not in returned}
    changed = settled(settled(state, replace(electorate, epochs=epochs)), electorate)
    return state if changed == state else changed._replace(partition_epoch=state.partition_epoch + 1)


def _reassigned(state: PartitionState, electorate: Electorate) -> PartitionState:
    """Drop the replaced replicas once every other replica is in sync."""
    if not state.adding and not state.removing:
        return state
    target = target_replicas(state)
    if not all(replica in state.isr and electorate.serves(replica, state) for replica in target):
        return state
    return _with_isr(
        state._replace(replicas=target, adding=(), removing=()),
        [replica for replica in state.isr if replica in target],
        electorate,
    )


def target_replicas(state: PartitionState) -> tuple[int, ...]:
    """The replicas of a partition once its reassignment is complete."""
    return tuple(replica for replica in state.replicas if replica not in state.removing)


def _without_lost_replicas(state: PartitionState, electorate: Electorate) -> PartitionState:
    """Elect a leader where the present one is gone, and take lost replicas out of sync.

    Without any leader nothing is committed, so that all members of the last ISR stay electable.
    """
    leader = _leader(state, electorate)
    if leader == NO_LEADER:
        return _led_by(state, NO_LEADER, electorate)
    in_sync = [replica for replica in state.isr if replica == leader or electorate.serves(replica, state)]
    if leader not in state.isr:
        # From the eligible replicas the ISR goes on; after an unclean election no other replica is known to
        # agree with the leader.
        in_sync = [*in_sync, leader] if leader in state.eligible else [leader]
        if leader not in state.eligible:
            state = state._replace(eligible=(), isr=(leader,))
    return _with_isr(_led_by(state, leader, electorate), in_sync, electorate)


def _leader(state: PartitionState, electorate: Electorate) -> int:
    """The present leader if it can stay; else the first replica that lacks no committed record."""
    if electorate.leads(state) and electorate.serves(state.leader, state):
        return state.leader
    able = [replica for replica in state.replicas if electorate.serves(replica, state)]
    for trusted in (state.isr, state.eligible):
        for replica in able:
            if replica in trusted:
                return replica
    if electorate.leads(state):
        # It is about to stop, and no other replica can take over.
        return state.leader
    return able[0] if able and electorate.allows_unclean else NO_LEADER


def _led_by(state: PartitionState, leader: int, electorate: Electorate) -> PartitionState:
    """A new leader begins a new epoch; so does the lack of one, which fences the leader that was."""
    broker_epoch = electorate.epochs.get(leader, NO_EPOCH)
    if (leader, broker_epoch) == (state.leader, state.leader_broker_epoch):
        return state
    return state._replace(
        leader=leader, leader_epoch=state.leader_epoch + 1, leader_broker_epoch=broker_epoch
    )


def _with_isr(state: PartitionState, in_sync: Iterable[int], electorate: Electorate) -> PartitionState:
    """Change the replicas in sync. Those that leave while too few remain stay eligible (KIP-966)."""
    isr = tuple(in_sync)
    needed = min(electorate.min_insync_replicas, len(state.replicas))
    if len(isr) >= needed:
        return state._replace(isr=isr, eligible=())
    known = dict.fromkeys((*state.eligible, *state.isr))
    eligible = (replica for replica in known if replica not in isr and replica in state.replicas)
    return state._replace(isr=isr, eligible=tuple(eligible))


# Requests of leaders


def altered(
    state: PartitionState,
    electorate: Electorate,
    *,
    leader: int,
    leader_epoch: int,
    partition_epoch: int,
    in_sync: Mapping[int, int],
) -> PartitionState:
    """The state after a leader's AlterPartition: `in_sync` are replicas with the broker epochs it knows.

    Raises KafkaError if the request is refused (KIP-497, KIP-841, KIP-903).
    """
    if leader_epoch > state.leader_epoch or partition_epoch > state.partition_epoch:
        # The leader knows more than this controller, which another one must have replaced.
        raise KafkaError(Error.NOT_CONTROLLER)
    if leader_epoch < state.leader_epoch or leader != state.leader:
        raise KafkaError(Error.FENCED_LEADER_EPOCH)
    if set(in_sync) == set(state.isr):
        # Sent twice: the response to the first request was lost.
        return state
    if partition_epoch < state.partition_epoch:
        raise KafkaError(Error.INVALID_UPDATE_VERSION)
    if leader not in in_sync or not set(in_sync) <= set(state.replicas):
        raise KafkaError(Error.INVALID_REQUEST)
    for replica in in_sync.keys() - {leader, *state.isr}:
        # Fetches of a former life say nothing about the log that the broker has now.
        if electorate.epochs.get(replica) != in_sync[replica] or not electorate.serves(replica, state):
            raise KafkaError(Error.INELIGIBLE_REPLICA)
    ordered = [replica for replica in state.replicas if replica in in_sync]
    changed = _with_isr(state, ordered, electorate)._replace(partition_epoch=state.partition_epoch + 1)
    return _once(changed, electorate)


def _once(changed: PartitionState, electorate: Electorate) -> PartitionState:
    """Settle a changed state within the same write, which raises the partition epoch by one."""
    return settled(changed, electorate)._replace(partition_epoch=changed.partition_epoch)


# Requests of operators


def preferred(state: PartitionState, electorate: Electorate) -> PartitionState:
    """The state with the first replica as the leader, where that one can lead."""
    first = target_replicas(state)[0]
    if state.leader == first or first not in state.isr or not electorate.serves(first, state):
        return state
    return _led_by(state, first, electorate)._replace(partition_epoch=state.partition_epoch + 1)


def prefers_another(state: PartitionState) -> bool:
    """Whether the partition is led, but not by its first replica."""
    return NO_LEADER != state.leader != target_replicas(state)[0]


def elected_uncleanly(state: PartitionState, electorate: Electorate) -> PartitionState:
    """The state after an operator preferred losing records to having no leader."""
    if state.leader != NO_LEADER:
        return state
    return settled(state, replace(electorate, allows_unclean=True))


def reassigning(state: PartitionState, target: tuple[int, ...], electorate: Electorate) -> PartitionState:
    """The state with a reassignment to other replicas begun, or complete where nothing has to be copied.

    The replicas of before stay until all new ones are in sync. A reassignment under way is replaced.
    """
    origin = original_replicas(state)
    removing = tuple(replica for replica in origin if replica not in target)
    adding = tuple(replica for replica in target if replica not in origin)
    replicas = (*target, *removing)
    # Replicas that the reassignment before had begun to add.
    dropped = set(state.replicas) - set(replicas)
    in_sync = [replica for replica in state.isr if replica not in dropped]
    if not in_sync:
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT, "None of the remaining replicas is in sync; wait until one is."
        )
    changed = state._replace(
        replicas=replicas,
        adding=adding,
        removing=removing,
        eligible=tuple(replica for replica in state.eligible if replica not in dropped),
        partition_epoch=state.partition_epoch + 1,
    )
    return _once(_with_isr(changed, in_sync, electorate), electorate)


def original_replicas(state: PartitionState) -> tuple[int, ...]:
    """The replicas of a partition before the reassignment that is under way."""
    return tuple(replica for replica in state.replicas if replica not in state.adding)
