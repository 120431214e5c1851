"""Windows that span batches. The driver keeps the tuples that may still be needed in a state."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millrace.trident.model.nodes import Aggregate
from millrace.trident.model.windows import Window
from millrace.trident.operations.aggregators import Aggregation
from millrace.trident.operations.functions import label_of
from millrace.trident.spark.rows import batch_of, values_of
from millrace.trident.spark.state_steps import StateStep
from millrace.trident.spark.tuple_steps import called
from millrace.trident.state.map_state import MapState

KEY = ["window"]
Tuples = list[Sequence[Any]]


@dataclass(frozen=True)
class WindowStep(StateStep):
    """Adds the tuples of a batch to the windows, and yields an aggregate of each window that is complete.

    A batch that comes again starts from the tuples before it: the state is opaque.
    """

    window: Window
    aggregate: Aggregate
    now: Callable[[], float] = time.time

    def run(self, state: MapState, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tuples: Tuples = [values for batch in batches for values in values_of(batch, self.aggregate.inputs)]
        complete: list[Tuples] = []

        def update(kept: Any) -> Any:
            slide = slide_by_time if self.window.in_seconds else slide_by_count
            windows, rest = slide(self.window, kept, tuples, self.now())
            complete.extend(windows)
            return rest

        state.begin_commit(self.transaction)
        state.multi_update([KEY], [update])
        state.commit(self.transaction)
        rows = [result for window in complete for result in self._results(window)]
        yield batch_of(rows, self.schema, label_of(self.aggregate.aggregator))

    def _results(self, window: Tuples) -> list[Sequence[Any]]:
        outputs = [output.name for output in self.aggregate.outputs]
        transaction = self.transaction
        batch = 0 if transaction is None else transaction.batch
        aggregation = Aggregation(self.aggregate.aggregator, self.aggregate.inputs, outputs, batch)
        for values in window:
            called(label_of(self.aggregate.aggregator), aggregation.add, values)
        return aggregation.results()


def slide_by_count(window: Window, kept: Any, tuples: Tuples, _now: float) -> tuple[list[Tuples], Any]:
    """The windows that a batch completes, and the tuples to keep. A window ends with every n-th tuple."""
    buffer, total = kept if kept is not None else ([], 0)
    buffer, windows = list(buffer), []
    for values in tuples:
        buffer.append(list(values))
        del buffer[: -int(window.length)]
        total += 1
        if total % int(window.slide) == 0:
            windows.append(list(buffer))
    return windows, [buffer, total]


def slide_by_time(window: Window, kept: Any, tuples: Tuples, now: float) -> tuple[list[Tuples], Any]:
    """The windows that end before now, and the tuples to keep. The time of a tuple is that of its batch."""
    buffer, next_end = kept if kept is not None else ([], None)
    buffer, windows = list(buffer), []
    if next_end is None:
        next_end = _end_after(now, window)
    while next_end <= now and buffer:
        inside = [values for at, values in buffer if next_end - window.length < at <= next_end]
        if inside:
            windows.append(inside)
        next_end += window.slide
        buffer = [(at, values) for at, values in buffer if at > next_end - window.length]
    if next_end <= now:
        next_end = _end_after(now, window)
    buffer += [(now, list(values)) for values in tuples]
    return windows, [buffer, next_end]


def _end_after(now: float, window: Window) -> float:
    return (math.floor(now / window.slide) + 1) * window.slide
