"""Steps that query or update a state. They run in tasks, or in the driver if the state asks for it."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from millrace.trident.operations.aggregators import (
    CombinerAggregator,
    ReducerAggregator,
    combined_update,
    state_update,
)
from millrace.trident.operations.functions import label_of
from millrace.trident.operations.queries import QueryFunction, StateUpdater, queried
from millrace.trident.operations.tuples import Collector, TridentTuple, hashable
from millrace.trident.spark.rows import array_of, batch_of, tuples_of, values_of
from millrace.trident.spark.tuple_steps import Prepared, called
from millrace.trident.state.declaration import StateSpec
from millrace.trident.state.map_state import MapState
from millrace.trident.state.ownership import Transaction

# The states that this worker process has open. Spark uses a process for many tasks, one after the other.
_OPEN: dict[bytes, MapState] = {}


def opened_in_task(spec: StateSpec, bootstrap: str) -> MapState:
    """A state for a task: the one that an earlier task of this process has opened, if there is one."""
    try:
        key = pickle.dumps((spec, bootstrap))
    except (pickle.PicklingError, AttributeError, TypeError):
        # A store that is declared by a local function.
        return spec.open(bootstrap)
    if key not in _OPEN:
        _OPEN[key] = spec.open(bootstrap)
    return _OPEN[key]


@dataclass(frozen=True)
class StateStep(ABC):
    """A step with a state, inside a transaction."""

    spec: StateSpec
    bootstrap: str
    transaction: Transaction | None
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from self.run(opened_in_task(self.spec, self.bootstrap), batches)
        except BaseException:
            # The next task tries with new connections.
            _OPEN.clear()
            raise

    @abstractmethod
    def run(self, state: MapState, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the step over the batches of a task, or of all tasks."""


@dataclass(frozen=True)
class CombinerUpdate(StateStep):
    """Adds one combined value for each key to a state; yields the new values."""

    groups: Sequence[str]
    aggregator: CombinerAggregator
    value: str

    def run(self, state: MapState, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        label = label_of(self.aggregator)
        for batch in batches:
            keys = list(values_of(batch, self.groups))
            updates = [combined_update(self.aggregator, value) for (value,) in values_of(batch, [self.value])]
            state.begin_commit(self.transaction)
            new = called(label, partial(state.multi_update, updates=updates), keys)
            state.commit(self.transaction)
            yield batch_of([(*key, value) for key, value in zip(keys, new, strict=True)], self.schema, label)


@dataclass(frozen=True)
class ReducerUpdate(StateStep):
    """Adds the tuples of each key to a state; yields the new values."""

    groups: Sequence[str]
    inputs: Sequence[str]
    aggregator: ReducerAggregator

    def run(self, state: MapState, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        label = label_of(self.aggregator)
        found: dict[Any, tuple[tuple[Any, ...], list[TridentTuple]]] = {}
        for batch in tuples_of(batches):
            rows = zip(values_of(batch, self.groups), values_of(batch, self.inputs), strict=True)
            for key, values in rows:
                found.setdefault(hashable(key), (key, []))[1].append(TridentTuple(self.inputs, values))
        keys = [key for key, _ in found.values()]
        updates = [state_update(self.aggregator, tuples) for _, tuples in found.values()]
        state.begin_commit(self.transaction)
        new = called(label, partial(state.multi_update, updates=updates), keys)
        state.commit(self.transaction)
        yield batch_of([(*key, value) for key, value in zip(keys, new, strict=True)], self.schema, label)


@dataclass(frozen=True)
class UpdaterStep(StateStep):
    """Hands the tuples of a task to a user's updater; yields the tuples that it emits."""

    inputs: Sequence[str]
    updater: StateUpdater

    def run(self, state: MapState, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tuples = [
            TridentTuple(self.inputs, values) for batch in batches for values in values_of(batch, self.inputs)
        ]
        collector = Collector(self.schema.names)
        label = label_of(self.updater)
        with Prepared(self.updater):
            state.begin_commit(self.transaction)
            called(label, lambda tuples: self.updater.update_state(state, tuples, collector), tuples)
            state.commit(self.transaction)
        yield batch_of(collector.emitted, self.schema, label)


@dataclass(frozen=True)
class QueryStep(StateStep):
    """Appends to each tuple what a query finds for it."""

    inputs: Sequence[str]
    function: QueryFunction
    outputs: Sequence[str]

    def run(self, state: MapState, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        label = label_of(self.function)
        with Prepared(self.function):
            state.begin_commit(self.transaction)
            for batch in batches:
                tuples = [TridentTuple(self.inputs, values) for values in values_of(batch, self.inputs)]
                positions, results = called(label, lambda tuples: self._results(state, tuples), tuples)
                columns = list(zip(*results, strict=True)) if results else [()] * len(self.outputs)
                new = [
                    array_of(values, self.schema.field(name), label)
                    for name, values in zip(self.outputs, columns, strict=True)
                ]
                kept = batch.take(pa.array(positions, pa.int64())).columns
                yield pa.RecordBatch.from_arrays([*kept, *new], names=self.schema.names)

    def _results(
        self, state: MapState, tuples: Sequence[TridentTuple]
    ) -> tuple[list[int], list[Sequence[Any]]]:
        positions: list[int] = []
        results: list[Sequence[Any]] = []
        for position, row in enumerate(queried(self.function, state, tuples, self.outputs)):
            positions += [position] * len(row)
            results += row
        return positions, results
