"""Functions and filters. Subclass them, or pass plain Python functions."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from millrace.trident.errors import TridentError
from millrace.trident.operations.expressions import Expression
from millrace.trident.operations.tuples import Collector, TridentTuple


class Operation:
    """The life of an operation within a task."""

    def prepare(self) -> None:
        """Set up this instance in its task: connections, caches, everything that cannot be serialised."""

    def cleanup(self) -> None:
        """The task ends. Not promised: it may be killed."""


class Function(Operation, ABC):
    """Emits any number of results for a tuple. They are appended to its fields."""

    @abstractmethod
    def execute(self, tup: TridentTuple, collector: Collector) -> None:
        """Call `collector.emit([...])` with a value for each output field."""


class Filter(Operation, ABC):
    """Keeps tuples or drops them."""

    @abstractmethod
    def is_keep(self, tup: TridentTuple) -> bool:
        """Whether the tuple stays in the stream."""


class Split(Function):
    """Splits a text at a separator, and emits each part."""

    output_type = "string"

    def __init__(self, separator: str = " ") -> None:
        if not separator:
            raise TridentError("Split needs a separator; write Split(' ')")
        self.separator = separator

    def execute(self, tup: TridentTuple, collector: Collector) -> None:
        if tup[0] is not None:
            for part in tup[0].split(self.separator):
                collector.emit([part])

    def __repr__(self) -> str:
        return f"Split({self.separator!r})"


class FilterNull(Filter):
    """Drops tuples in which a value is missing."""

    def is_keep(self, tup: TridentTuple) -> bool:
        return all(value is not None for value in tup)

    def __repr__(self) -> str:
        return "FilterNull()"


class Equals(Filter):
    """Keeps tuples whose values are all equal."""

    def is_keep(self, tup: TridentTuple) -> bool:
        return all(value == tup[0] for value in tup)

    def __repr__(self) -> str:
        return "Equals()"


class Negate(Filter):
    """Keeps the tuples that another filter drops."""

    def __init__(self, filter: Filter) -> None:
        self.filter = filter

    def prepare(self) -> None:
        self.filter.prepare()

    def cleanup(self) -> None:
        self.filter.cleanup()

    def is_keep(self, tup: TridentTuple) -> bool:
        return not self.filter.is_keep(tup)

    def __repr__(self) -> str:
        return f"Negate({self.filter!r})"


class Debug(Filter):
    """Prints each tuple, and keeps it."""

    def __init__(self, label: str = "DEBUG") -> None:
        self.label = label

    def is_keep(self, tup: TridentTuple) -> bool:
        print(f"{self.label}: {tup!r}", flush=True)
        return True

    def __repr__(self) -> str:
        return f"Debug({self.label!r})"


AnyFunction: TypeAlias = "Function | Expression | Callable[..., Any]"
AnyFilter: TypeAlias = "Filter | Expression | Callable[..., Any]"
Values: TypeAlias = Sequence[Any]


def label_of(operation: Any) -> str:
    """The name of an operation in explanations and errors."""
    if callable(operation):
        return str(getattr(operation, "__qualname__", None) or type(operation).__name__)
    text = repr(operation)
    return text if not text.startswith("<") else type(operation).__name__


def emits_many(function: AnyFunction) -> bool:
    """Whether a function may emit no result or several: a Function does, and a generator."""
    return isinstance(function, Function) or inspect.isgeneratorfunction(function)


def emitter(
    function: AnyFunction, inputs: Sequence[str], outputs: Sequence[str], *, is_flat: bool = False
) -> Callable[[Values], Iterable[Values]]:
    """A function from the values of the inputs to the results, each with a value for each output.

    A plain function gets the values as arguments. It returns a value, or a tuple of values if there are
    several outputs. A generator yields them, and with `is_flat` any function returns an iterable of them.
    """
    names, width = list(inputs), len(outputs)
    if isinstance(function, Function):

        def execute(values: Values) -> Iterable[Values]:
            collector = Collector(outputs)
            function.execute(TridentTuple(names, values), collector)
            return collector.emitted

        return execute
    if isinstance(function, Expression):
        expression = function
        return lambda values: ((expression.evaluate(dict(zip(names, values, strict=True))),),)
    plain, label = function, label_of(function)
    if is_flat or inspect.isgeneratorfunction(plain):
        return lambda values: _each_result(plain(*values), width, label)
    return lambda values: (_result(plain(*values), width, label),)


def _each_result(results: Any, width: int, label: str) -> Iterator[Values]:
    if results is None or isinstance(results, (str, bytes)):
        raise TridentError(f"{label} returned {results!r}; return or yield an iterable of results")
    return (_result(result, width, label) for result in results)


def _result(result: Any, width: int, label: str) -> Values:
    if width == 1:
        return (result,)
    if not isinstance(result, (tuple, list)) or len(result) != width:
        raise TridentError(
            f"{label} returned {result!r} for {width} output fields; return a tuple of {width}"
        )
    return result


def predicate(filter: AnyFilter, inputs: Sequence[str]) -> Callable[[Values], bool]:
    """A function from the values of the inputs to whether the tuple is kept."""
    names = list(inputs)
    if isinstance(filter, Filter):
        return lambda values: bool(filter.is_keep(TridentTuple(names, values)))
    if isinstance(filter, Expression):
        expression = filter
        return lambda values: bool(expression.evaluate(dict(zip(names, values, strict=True))))
    plain = filter
    return lambda values: bool(plain(*values))
