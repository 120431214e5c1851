"""Steps that aggregate tuples in Python. Combiners run before and after tuples move between tasks."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millrace.trident.model.nodes import Aggregate
from millrace.trident.operations.aggregators import Aggregation
from millrace.trident.operations.functions import label_of
from millrace.trident.operations.tuples import hashable
from millrace.trident.spark.rows import batch_of, tuples_of, values_of
from millrace.trident.spark.tuple_steps import Prepared, called

PARTIAL = "__partial_{}"
"""The column of a combiner's partial values, pickled."""


class Groups:
    """The aggregates of each group of tuples under way."""

    def __init__(self, aggregates: Sequence[Aggregate], batch: int) -> None:
        self.aggregates = aggregates
        self.labels = [label_of(aggregate.aggregator) for aggregate in aggregates]
        self._batch = batch
        self._groups: dict[Any, tuple[tuple[Any, ...], list[Aggregation]]] = {}

    def of(self, key: tuple[Any, ...]) -> list[Aggregation]:
        """The aggregates of a group."""
        name = hashable(key)
        found = self._groups.get(name)
        if found is None:
            new = [
                Aggregation(
                    aggregate.aggregator,
                    aggregate.inputs,
                    [output.name for output in aggregate.outputs],
                    self._batch,
                )
                for aggregate in self.aggregates
            ]
            found = self._groups[name] = (key, new)
        return found[1]

    def add(self, key: tuple[Any, ...], inputs: Sequence[Sequence[Any]]) -> None:
        """Add a tuple, given by the inputs of each aggregate."""
        for aggregation, values, label in zip(self.of(key), inputs, self.labels, strict=True):
            called(label, aggregation.add, values)

    def __iter__(self) -> Iterator[tuple[tuple[Any, ...], list[Aggregation]]]:
        return iter(self._groups.values())

    def results(self) -> Iterator[list[Any]]:
        """The key of each group and its results. Several results of several aggregates are combined."""
        for key, aggregations in self:
            made = [
                called(label, _results, aggregation)
                for aggregation, label in zip(aggregations, self.labels, strict=True)
            ]
            for combination in itertools.product(*made):
                yield [*key, *itertools.chain(*combination)]


@dataclass(frozen=True)
class AggregateStep:
    """Aggregates all tuples that come to a task."""

    groups: Sequence[str]
    aggregates: Sequence[Aggregate]
    schema: pa.Schema
    batch: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with Prepared(*(aggregate.aggregator for aggregate in self.aggregates)):
            found = Groups(self.aggregates, self.batch)
            if not self.groups:
                # No tuples have an aggregate too.
                found.of(())
            for batch in tuples_of(batches):
                inputs = [list(values_of(batch, aggregate.inputs)) for aggregate in self.aggregates]
                for key, *values in zip(values_of(batch, self.groups), *inputs, strict=True):
                    found.add(key, values)
            yield batch_of(list(found.results()), self.schema, ", ".join(found.labels))


@dataclass(frozen=True)
class PartialStep:
    """Combines the tuples of a task before they move: one row for each group."""

    groups: Sequence[str]
    aggregates: Sequence[Aggregate]
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = Groups(self.aggregates, 0)
        for batch in batches:
            inputs = [list(values_of(batch, aggregate.inputs)) for aggregate in self.aggregates]
            for key, *values in zip(values_of(batch, self.groups), *inputs, strict=True):
                found.add(key, values)
        rows = [
            [*key, *(pickle.dumps(aggregation.partial) for aggregation in aggregations)]
            for key, aggregations in found
        ]
        yield batch_of(rows, self.schema, ", ".join(found.labels))


@dataclass(frozen=True)
class CombineStep:
    """Combines the partial values of all tasks."""

    groups: Sequence[str]
    aggregates: Sequence[Aggregate]
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = Groups(self.aggregates, 0)
        if not self.groups:
            found.of(())
        partials = [PARTIAL.format(number) for number in range(len(self.aggregates))]
        for batch in tuples_of(batches):
            for key, values in zip(values_of(batch, self.groups), values_of(batch, partials), strict=True):
                for aggregation, value, label in zip(found.of(key), values, found.labels, strict=True):
                    called(label, aggregation.add_partial, pickle.loads(value))
        yield batch_of(list(found.results()), self.schema, ", ".join(found.labels))


def _results(aggregation: Aggregation) -> list[Sequence[Any]]:
    return aggregation.results()
