"""DRPC streams of a topology as functions: their operators run in the topology runtime, call by call."""

from __future__ import annotations

from typing import Any

from millrace.drpc.linear import LinearDRPC, Step
from millrace.topologies import Bolt, TaskContext, Tuple
from millrace.trident.errors import TridentError
from millrace.trident.local import LocalBatch
from millrace.trident.model import nodes
from millrace.trident.model.explanation import describe
from millrace.trident.model.topology import TridentTopology, ancestors
from millrace.trident.state.declaration import StateSpec
from millrace.trident.state.map_state import MapState

_POSSIBLE = (
    nodes.Request,
    nodes.Each,
    nodes.Keep,
    nodes.Peek,
    nodes.Project,
    nodes.Repartition,
    nodes.Top,
    nodes.Merged,
    nodes.Aggregated,
    nodes.Joined,
    nodes.Queried,
)


class QueryBolt(Bolt):
    """Answers the calls of one function with the tuples at the end of its stream, as a list of lists."""

    outputs = ("id", "result")

    def __init__(self, request: nodes.Request, end: nodes.Node) -> None:
        self._request = request
        self._end = end
        self._states: dict[str, MapState] = {}

    def initialize(self, conf: dict[str, Any], context: TaskContext) -> None:
        for spec in _states_of(self._end):
            self._states[spec.name] = spec.open(context.bootstrap)

    def process(self, tup: Tuple) -> None:
        batch = LocalBatch(self._request, [(tup["args"],)], lambda spec: self._states[spec.name])
        self.emit([tup["id"], [list(row) for row in batch.rows(self._end)]])

    def cleanup(self) -> None:
        for state in self._states.values():
            state.close()


def drpc_topology(topology: TridentTopology, module: str) -> type[LinearDRPC]:
    """A topology of all DRPC streams of a Trident topology, as a class of a module."""
    if not topology.requests:
        raise TridentError(f"{topology.name} has no DRPC stream; begin one with new_drpc_stream")
    functions = {}
    for request in topology.requests:
        end = topology.results(request)
        _check(request, end)
        functions[request.function] = [Step(QueryBolt, request, end)]
    attributes = {"functions": functions, "name": f"{topology.name}-queries", "__module__": module}
    return type("Queries", (LinearDRPC,), attributes)


def _check(request: nodes.Request, end: nodes.Node) -> None:
    for node in ancestors(end):
        if not isinstance(node, _POSSIBLE):
            raise TridentError(
                f"the DRPC stream {request.function} uses {describe(node)}, which runs on Spark;"
                " keep it in a stream over the log, and query its state"
            )
    for spec in _states_of(end):
        if not spec.is_outside:
            raise TridentError(
                f"the DRPC stream {request.function} queries {spec.name}, which is in the memory of Spark's"
                " driver, where no other process reaches it; use SQLite, PostgreSQL, Redis or the log"
            )
        if spec.is_relative:
            raise TridentError(
                f"the DRPC stream {request.function} queries {spec.name}, whose file has a relative path,"
                " and its workers run in another directory; give the whole path"
            )


def _states_of(end: nodes.Node) -> list[StateSpec]:
    found = [node.state for node in ancestors(end) if isinstance(node, nodes.Queried)]
    return list({spec.name: spec for spec in found}.values())
