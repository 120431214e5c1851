"""Aggregators: they turn many tuples into few. Their fields replace those of the tuples."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from millrace.trident.operations.functions import Operation
from millrace.trident.operations.tuples import Collector, TridentTuple


class CombinerAggregator(ABC):
    """Combines values pairwise, in any order. Each task combines its own tuples first."""

    @abstractmethod
    def init(self, tup: TridentTuple) -> Any:
        """The value of one tuple."""

    @abstractmethod
    def combine(self, left: Any, right: Any) -> Any:
        """The value of two values."""

    @abstractmethod
    def zero(self) -> Any:
        """The value of no tuple."""


class ReducerAggregator(ABC):
    """Adds tuples to a value, one after the other."""

    @abstractmethod
    def init(self) -> Any:
        """The value of no tuple."""

    @abstractmethod
    def reduce(self, current: Any, tup: TridentTuple) -> Any:
        """The value with one more tuple."""


class Aggregator(Operation, ABC):
    """Aggregates tuples in any way, and emits any number of results."""

    def init(self, batch: int, collector: Collector) -> Any:
        """The value before the first tuple."""

    @abstractmethod
    def aggregate(self, value: Any, tup: TridentTuple, collector: Collector) -> Any:
        """Add a tuple. A result other than None replaces the value."""

    @abstractmethod
    def complete(self, value: Any, collector: Collector) -> None:
        """All tuples have come: emit the results."""


AnyAggregator: TypeAlias = CombinerAggregator | ReducerAggregator | Aggregator


class Count(CombinerAggregator):
    """The number of tuples."""

    output_type = "bigint"

    def init(self, tup: TridentTuple) -> int:
        return 1

    def combine(self, left: int, right: int) -> int:
        return left + right

    def zero(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "Count()"


class _OfField(CombinerAggregator):
    """Combines the values of one field; missing values do not count."""

    def init(self, tup: TridentTuple) -> Any:
        return tup[0]

    def combine(self, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        return self.combined(left, right)

    def zero(self) -> Any:
        return None

    @abstractmethod
    def combined(self, left: Any, right: Any) -> Any: ...

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Sum(_OfField):
    """The sum of a field; 0 if there is nothing to add."""

    def init(self, tup: TridentTuple) -> Any:
        return 0 if tup[0] is None else tup[0]

    def combined(self, left: Any, right: Any) -> Any:
        return left + right

    def zero(self) -> Any:
        return 0


class Min(_OfField):
    """The smallest value of a field."""

    def combined(self, left: Any, right: Any) -> Any:
        return min(left, right)


class Max(_OfField):
    """The largest value of a field."""

    def combined(self, left: Any, right: Any) -> Any:
        return max(left, right)


class Aggregation:
    """The aggregate of some tuples under way. `partial` values of combiners can be sent between tasks."""

    __slots__ = ("_aggregator", "_collector", "_inputs", "_is_empty", "_value")

    def __init__(
        self, aggregator: AnyAggregator, inputs: Sequence[str], outputs: Sequence[str], batch: int
    ) -> None:
        self._aggregator = aggregator
        self._inputs = inputs
        self._collector = Collector(outputs)
        self._is_empty = True
        self._value: Any = None
        if isinstance(aggregator, ReducerAggregator):
            self._value = aggregator.init()
        elif isinstance(aggregator, Aggregator):
            self._value = aggregator.init(batch, self._collector)

    def add(self, values: Sequence[Any]) -> None:
        """Add a tuple, given by the values of the inputs."""
        tup, aggregator = TridentTuple(self._inputs, values), self._aggregator
        if isinstance(aggregator, CombinerAggregator):
            self.add_partial(aggregator.init(tup))
        elif isinstance(aggregator, ReducerAggregator):
            self._value = aggregator.reduce(self._value, tup)
        else:
            changed = aggregator.aggregate(self._value, tup, self._collector)
            self._value = self._value if changed is None else changed

    def add_partial(self, partial: Any) -> None:
        """Add the partial value of a combiner."""
        assert isinstance(self._aggregator, CombinerAggregator)
        self._value = partial if self._is_empty else self._aggregator.combine(self._value, partial)
        self._is_empty = False

    @property
    def partial(self) -> Any:
        """The value of a combiner so far."""
        return self._value

    def results(self) -> list[Sequence[Any]]:
        """The results, each with a value for each output."""
        aggregator = self._aggregator
        if isinstance(aggregator, Aggregator):
            aggregator.complete(self._value, self._collector)
            return self._collector.emitted
        if isinstance(aggregator, CombinerAggregator) and self._is_empty:
            self._value = aggregator.zero()
        self._collector.emit([self._value])
        return self._collector.emitted


def state_update(
    aggregator: CombinerAggregator | ReducerAggregator, tuples: Iterable[TridentTuple]
) -> Callable[[Any], Any]:
    """The update of a state's value by the tuples of a batch."""
    if isinstance(aggregator, CombinerAggregator):
        values = [aggregator.init(tup) for tup in tuples]
        return combined_update(aggregator, functools.reduce(aggregator.combine, values))
    found, reducer = list(tuples), aggregator

    def reduce(current: Any) -> Any:
        start = reducer.init() if current is None else current
        return functools.reduce(reducer.reduce, found, start)

    return reduce


def combined_update(aggregator: CombinerAggregator, value: Any) -> Callable[[Any], Any]:
    """The update of a state's value by the combined value of a batch."""
    return lambda current: value if current is None else aggregator.combine(current, value)
