"""Queries and updates of states by the tuples of a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from millrace.trident.operations.functions import Operation
from millrace.trident.operations.tuples import Collector, TridentTuple
from millrace.trident.state.map_state import MapState


class QueryFunction(Operation, ABC):
    """Looks tuples up in a state, many at once, and emits results that are appended to them."""

    @abstractmethod
    def batch_retrieve(self, state: MapState, tuples: Sequence[TridentTuple]) -> Sequence[Any]:
        """The result for each tuple, in order."""

    def execute(self, tup: TridentTuple, result: Any, collector: Collector) -> None:
        """Emit what the result means for the tuple; one value by default."""
        collector.emit([result])


class MapGet(QueryFunction):
    """The value of the key that the tuple holds; None if there is none."""

    def batch_retrieve(self, state: MapState, tuples: Sequence[TridentTuple]) -> Sequence[Any]:
        return state.multi_get([list(tup) for tup in tuples])

    def __repr__(self) -> str:
        return "MapGet()"


class SnapshotGet(MapGet):
    """The value of a state without keys, such as that of a global `persistent_aggregate`."""

    def batch_retrieve(self, state: MapState, tuples: Sequence[TridentTuple]) -> Sequence[Any]:
        [value] = state.multi_get([[]])
        return [value] * len(tuples)

    def __repr__(self) -> str:
        return "SnapshotGet()"


class StateUpdater(Operation, ABC):
    """Updates a state with the tuples of a partition, and may emit new values."""

    @abstractmethod
    def update_state(self, state: MapState, tuples: Sequence[TridentTuple], collector: Collector) -> None:
        """Call `state.multi_update` or `state.multi_put`; the transaction is begun and committed around."""


def queried(
    function: QueryFunction, state: MapState, tuples: Sequence[TridentTuple], outputs: Sequence[str]
) -> Iterator[list[Sequence[Any]]]:
    """The results of a query for each tuple."""
    found = function.batch_retrieve(state, tuples) if tuples else []
    for tup, result in zip(tuples, found, strict=True):
        collector = Collector(outputs)
        function.execute(tup, result, collector)
        yield collector.emitted
