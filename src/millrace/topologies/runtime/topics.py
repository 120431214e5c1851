"""The topics that a topology keeps for itself."""

from __future__ import annotations

from millrace.topologies.model.config import value_of
from millrace.topologies.model.topology import Plan

MAX_RECORD_BYTES = 16 * 1024 * 1024
"""The largest tuple between workers, and the largest value of a state."""
METRICS = "__topology_metrics"
"""The figures of all topologies, one record per worker and second; the key is the topology's id."""


def group_of(name: str) -> str:
    """The consumer group whose offsets are the topology's progress."""
    return f"topology-{name}"


def own_prefix(name: str) -> str:
    """Prefix of the topics that only the topology itself reads and writes."""
    return f"_topology.{name}."


def edge_topic(name: str, component: str) -> str:
    """Tuples for a component; partition N is for its task of index N."""
    return f"_topology.{name}.edge.{component}"


def ack_topic(name: str) -> str:
    """Acks for the tuple trees of spouts; partition N is for the acker of worker N."""
    return f"_topology.{name}.acks"


def state_topic(name: str, component: str) -> str:
    """The changelog of a stateful component; partition N is that of its task of index N."""
    return f"_topology.{name}.state.{component}"


def control_topic(name: str) -> str:
    """The orders of the driver to its workers."""
    return f"_topology.{name}.control"


def held_topic(name: str, component: str) -> str:
    """The changelog of the tuples that a component's tasks hold, in exactly-once mode."""
    return f"_topology.{name}.held.{component}"


def sample_topic(name: str) -> str:
    """Samples of the tuples that components emit."""
    return f"_topology.{name}.samples"


def dead_letter_topic(plan: Plan, component: str) -> str:
    """The topic for tuples that a component gave up, or records, of a log spout."""
    chosen = value_of("topology.dead.letter.topic", plan.components[component].config, plan.config)
    return chosen or f"{plan.name}-dead-letters"


def transactional_id(name: str, worker: int) -> str:
    return f"topology-{name}-{worker}"


def driver_id(name: str) -> str:
    """The transactional id of a topology's driver: a second driver fences the first."""
    return f"topology-{name}-driver"
