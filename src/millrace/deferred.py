"""A value that arrives later, without the cost of a task: the result of a request that waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar, cast

T = TypeVar("T")
U = TypeVar("U")


class Deferred(Generic[T]):
    """Resolved or failed at most once, on the loop; its receiver may cancel it first.

    Both ends drop their references to each other afterwards. Reference cycles would be left to the garbage
    collector, whose runs delay other requests.
    """

    __slots__ = ("_callback", "_conversions", "_on_cancel", "_value", "cancelled", "resolved")

    def __init__(self, on_cancel: Callable[[], None] | None = None) -> None:
        self._callback: Callable[[Any], None] | None = None
        self._conversions: list[_Conversion] | None = None
        self._on_cancel = on_cancel
        self._value: T | BaseException | None = None
        self.resolved = False
        """Whether the value, or an error in its place, is there."""
        self.cancelled = False

    @classmethod
    def of(cls, value: T) -> Deferred[T]:
        """A deferred that has its value already."""
        deferred = cls()
        deferred._value = value
        deferred.resolved = True
        return deferred

    @classmethod
    def failing(cls, error: BaseException) -> Deferred[T]:
        """A deferred that has failed already."""
        deferred = cls()
        deferred._value = error
        deferred.resolved = True
        return deferred

    def then(self, callback: Callable[[T], None]) -> None:
        """Call `callback` with the value, or the error in its place; at once if it is there already."""
        if self.resolved:
            callback(cast("T", self._value))
        else:
            self._callback = callback

    def convert(
        self, conversion: Callable[[T], U], on_error: Callable[[BaseException], U] | None = None
    ) -> Deferred[U]:
        """The same deferred with its value converted; the code that resolves it need not know.

        An error is left as it is, unless `on_error` makes a value of it.
        """
        converted = cast("Deferred[U]", self)
        if self.resolved:
            converted._value = _convert(self._value, (conversion, on_error))
        elif self._conversions is None:
            self._conversions = [(conversion, on_error)]
        else:
            self._conversions.append((conversion, on_error))
        return converted

    def result(self) -> T:
        """The value of a resolved deferred; raises its error."""
        if isinstance(self._value, BaseException):
            raise self._value
        return cast("T", self._value)

    def resolve(self, value: T) -> None:
        self._settle(value)

    def fail(self, error: BaseException) -> None:
        """Hand the receiver an error instead of the value."""
        self._settle(error)

    def _settle(self, value: Any) -> None:
        if self.cancelled or self.resolved:
            return
        self.resolved = True
        for conversion in self._conversions or ():
            value = _convert(value, conversion)
        callback, self._callback, self._conversions, self._on_cancel = self._callback, None, None, None
        if callback is None:
            self._value = value
        else:
            callback(value)

    def cancel(self) -> None:
        """Drop the value: the connection that waited for it is closed."""
        if self.resolved or self.cancelled:
            return
        self.cancelled = True
        on_cancel, self._callback, self._conversions, self._on_cancel = self._on_cancel, None, None, None
        if on_cancel is not None:
            on_cancel()

    def __await__(self) -> Generator[Any, None, T]:
        if not self.resolved:
            ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def wake(value: T) -> None:
                self._value = value
                if not ready.done():
                    ready.set_result(None)

            self.then(wake)
            yield from ready
        return self.result()


Eventual: TypeAlias = T | Deferred[T]
"""A value that is there already, or arrives later."""


def gather(values: Sequence[Eventual[T]], combine: Callable[[list[T]], U]) -> Eventual[U]:
    """The values combined, once all of them are there. The first error fails all."""
    results: list[Any] = list(values)
    missing = [place for place, value in enumerate(values) if isinstance(value, Deferred)]
    left = len(missing)
    if not left:
        return combine(results)
    gathered: Deferred[list[T]] = Deferred()

    def receive(place: int, value: Any) -> None:
        nonlocal left
        results[place] = value
        left -= 1
        if isinstance(value, BaseException):
            gathered.fail(value)
        elif not left:
            gathered.resolve(results)

    for place in missing:
        results[place].then(partial(receive, place))
    return gathered.convert(combine)


_Conversion = tuple[Callable[[Any], Any], Callable[[BaseException], Any] | None]


def _convert(value: Any, conversion: _Conversion) -> Any:
    """An error in a conversion takes the place of its result."""
    on_value, on_error = conversion
    try:
        if not isinstance(value, BaseException):
            return on_value(value)
        return value if on_error is None else on_error(value)
    except Exception as error:
        return error
