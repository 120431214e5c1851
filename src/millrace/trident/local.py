"""The operators of a topology in plain Python: a DRPC call is a batch of its own, run by one task."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from millrace.trident.errors import TridentError
from millrace.trident.model import nodes
from millrace.trident.model.explanation import describe
from millrace.trident.operations.aggregators import Aggregation
from millrace.trident.operations.functions import emitter, predicate
from millrace.trident.operations.queries import queried
from millrace.trident.operations.tuples import TridentTuple, hashable
from millrace.trident.state.declaration import StateSpec
from millrace.trident.state.map_state import MapState

Rows = list[tuple[Any, ...]]


class LocalBatch:
    """The tuples of each node, for one batch of rows."""

    def __init__(
        self, source: nodes.Node, rows: Rows, state_of: Callable[[StateSpec], MapState], batch: int = 0
    ) -> None:
        self._found: dict[int, Rows] = {id(source): rows}
        self._state_of = state_of
        self._batch = batch

    def rows(self, node: nodes.Node) -> Rows:
        """The tuples of a node."""
        if id(node) not in self._found:
            self._found[id(node)] = self._computed(node)
        return self._found[id(node)]

    def _computed(self, node: nodes.Node) -> Rows:
        match node:
            case nodes.Each():
                return self._each(node)
            case nodes.Keep(parent=parent, inputs=inputs, filter=filter):
                keep = predicate(filter, inputs)
                return [row for row in self.rows(parent) if keep(_chosen(row, parent, inputs))]
            case nodes.Peek(parent=parent, action=action):
                for row in self.rows(parent):
                    action(*row)
                return self.rows(parent)
            case nodes.Project(parent=parent, fields=fields):
                return [_chosen(row, parent, fields) for row in self.rows(parent)]
            case nodes.Repartition(parent=parent):
                return self.rows(parent)
            case nodes.Top(parent=parent, by=by, count=count, descending=descending):
                position = parent.fields.index(by)
                known = [row for row in self.rows(parent) if row[position] is not None]
                return sorted(known, key=lambda row: row[position], reverse=descending)[:count]
            case nodes.Merged(streams=streams):
                return [row for stream in streams for row in self.rows(stream)]
            case nodes.Aggregated():
                return self._aggregated(node)
            case nodes.Joined():
                return self._joined(node)
            case nodes.Queried():
                return self._queried(node)
        raise TridentError(
            f"{describe(node)} cannot be a part of a DRPC stream; use it in a stream over the log"
        )

    def _each(self, node: nodes.Each) -> Rows:
        emit = emitter(
            node.function, node.inputs, [output.name for output in node.outputs], is_flat=node.is_flat
        )
        return [
            (*(() if node.replaces else row), *result)
            for row in self.rows(node.parent)
            for result in emit(_chosen(row, node.parent, node.inputs))
        ]

    def _aggregated(self, node: nodes.Aggregated) -> Rows:
        groups: dict[Any, tuple[tuple[Any, ...], list[Aggregation]]] = {}
        if not node.groups:
            groups[()] = ((), self._aggregations(node))
        for row in self.rows(node.parent):
            key = _chosen(row, node.parent, node.groups)
            if hashable(key) not in groups:
                groups[hashable(key)] = (key, self._aggregations(node))
            for aggregate, aggregation in zip(node.aggregates, groups[hashable(key)][1], strict=True):
                aggregation.add(_chosen(row, node.parent, aggregate.inputs))
        return [
            (*key, *itertools.chain(*combination))
            for key, aggregations in groups.values()
            for combination in itertools.product(*(aggregation.results() for aggregation in aggregations))
        ]

    def _aggregations(self, node: nodes.Aggregated) -> list[Aggregation]:
        return [
            Aggregation(
                aggregate.aggregator, aggregate.inputs, [one.name for one in aggregate.outputs], self._batch
            )
            for aggregate in node.aggregates
        ]

    def _joined(self, node: nodes.Joined) -> Rows:
        sides: list[dict[Any, Rows]] = []
        keys: dict[Any, tuple[Any, ...]] = {}
        for stream, by in zip(node.streams, node.keys, strict=True):
            others = [name for name in stream.fields if name not in by]
            side: dict[Any, Rows] = {}
            for row in self.rows(stream):
                key = _chosen(row, stream, by)
                keys.setdefault(hashable(key), key)
                side.setdefault(hashable(key), []).append(_chosen(row, stream, others))
            sides.append(side)
        found: Rows = []
        for name, key in keys.items():
            if any(name not in side and not outer for side, outer in zip(sides, node.outer, strict=True)):
                continue
            filled = [
                side.get(name) or [(None,) * (len(stream.fields) - len(by))]
                for side, stream, by in zip(sides, node.streams, node.keys, strict=True)
            ]
            found += [(*key, *itertools.chain(*combination)) for combination in itertools.product(*filled)]
        return found

    def _queried(self, node: nodes.Queried) -> Rows:
        rows = self.rows(node.parent)
        tuples = [TridentTuple(node.inputs, _chosen(row, node.parent, node.inputs)) for row in rows]
        outputs = [output.name for output in node.outputs]
        results = queried(node.function, self._state_of(node.state), tuples, outputs)
        return [(*row, *result) for row, made in zip(rows, results, strict=True) for result in made]


def _chosen(row: Sequence[Any], node: nodes.Node, fields: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[node.fields.index(name)] for name in fields)
