"""Steps over single tuples: Python functions, filters and peeks. Each runs in a task, over Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millrace.trident.errors import TridentError
from millrace.trident.operations.functions import (
    AnyFilter,
    AnyFunction,
    Operation,
    emitter,
    label_of,
    predicate,
)
from millrace.trident.spark.rows import array_of, values_of


class Prepared:
    """Prepares an operation at the start of a task, and cleans it up at the end."""

    def __init__(self, *operations: Any) -> None:
        self._operations = [operation for operation in operations if isinstance(operation, Operation)]

    def __enter__(self) -> None:
        for operation in self._operations:
            operation.prepare()

    def __exit__(self, *_: object) -> None:
        for operation in self._operations:
            operation.cleanup()


def called(label: str, work: Callable[[Any], Any], values: Any) -> Any:
    """Call the user's code; an error names the code and the tuple."""
    try:
        return work(values)
    except TridentError:
        raise
    except Exception as error:
        raise TridentError(
            f"{label} failed on {values!r}: {type(error).__name__}: {error};"
            " correct it, or filter such tuples before; the batch comes again then"
        ) from error


@dataclass(frozen=True)
class FunctionStep:
    """Appends the results of a function to each tuple, or replaces the tuple by them."""

    inputs: Sequence[str]
    function: AnyFunction
    outputs: Sequence[str]
    schema: pa.Schema
    replaces: bool
    is_flat: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        label = label_of(self.function)
        emit = emitter(self.function, self.inputs, self.outputs, is_flat=self.is_flat)
        with Prepared(self.function):
            for batch in batches:
                positions: list[int] = []
                results: list[Sequence[Any]] = []
                for position, values in enumerate(values_of(batch, self.inputs)):
                    made = called(label, lambda values: list(emit(values)), values)
                    positions += [position] * len(made)
                    results += made
                yield self._output(batch, positions, results, label)

    def _output(
        self, batch: pa.RecordBatch, positions: list[int], results: list[Sequence[Any]], label: str
    ) -> pa.RecordBatch:
        columns = list(zip(*results, strict=True)) if results else [()] * len(self.outputs)
        new = [
            array_of(values, self.schema.field(name), label)
            for name, values in zip(self.outputs, columns, strict=True)
        ]
        kept: list[pa.Array] = []
        if not self.replaces:
            kept = batch.take(pa.array(positions, pa.int64())).columns
        return pa.RecordBatch.from_arrays([*kept, *new], names=self.schema.names)


@dataclass(frozen=True)
class FilterStep:
    """Keeps the tuples for which a filter is true."""

    inputs: Sequence[str]
    filter: AnyFilter

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        label, keep = label_of(self.filter), predicate(self.filter, self.inputs)
        with Prepared(self.filter):
            for batch in batches:
                kept = [called(label, keep, values) for values in values_of(batch, self.inputs)]
                yield batch.filter(pa.array(kept, pa.bool_()))


@dataclass(frozen=True)
class PeekStep:
    """Calls a function with each tuple."""

    inputs: Sequence[str]
    action: Callable[..., Any]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        label = label_of(self.action)
        for batch in batches:
            for values in values_of(batch, self.inputs):
                called(label, lambda values: self.action(*values), values)
            yield batch
