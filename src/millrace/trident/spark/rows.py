"""Rows of Arrow batches as Python values, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from millrace.trident.errors import TridentError

IS_TUPLE = "__is_tuple"
"""A column that is false in the row that stands for an empty batch."""


def tuples_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches without the row that stands for an empty batch."""
    for batch in batches:
        yield batch.filter(batch.column(IS_TUPLE)) if IS_TUPLE in batch.schema.names else batch


def values_of(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The values of some columns, row by row."""
    if not names:
        return iter([()] * batch.num_rows)
    return zip(*(batch.column(name).to_pylist() for name in names), strict=True)


def array_of(values: Sequence[Any], field: pa.Field, label: str) -> pa.Array:
    """Values as a column; raises TridentError if one has another type."""
    try:
        return pa.array(values, type=field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        wrong = next((value for value in values if not _fits(value, field.type)), None)
        raise TridentError(
            f"{label} makes the field {field.name}, declared as {field.type}, but it made {wrong!r}"
            f" ({type(wrong).__name__}); correct the function or the declared type"
        ) from error


def _fits(value: Any, data_type: pa.DataType) -> bool:
    try:
        pa.array([value], type=data_type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True


def batch_of(rows: Sequence[Sequence[Any]], schema: pa.Schema, label: str) -> pa.RecordBatch:
    """Rows as a batch of columns."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [array_of(values, field, label) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
