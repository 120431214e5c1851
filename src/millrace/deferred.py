"""A value that arrives later, without the cost of a task: the result of a request that waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")
U = TypeVar("U")


class Deferred(Generic[T]):
    """Resolved at most once, on the loop; its receiver may cancel it first.

    Both ends drop their references to each other afterwards. Reference cycles would be left to the garbage
    collector, whose runs delay other requests.
    """

    __slots__ = ("_callback", "_conversion", "_on_cancel", "_value", "cancelled", "resolved")

    def __init__(self, on_cancel: Callable[[], None] | None = None) -> None:
        self._callback: Callable[[T], None] | None = None
        self._conversion: Callable[[Any], T] | None = None
        self._on_cancel = on_cancel
        self._value: T | None = None
        self.resolved = False
        self.cancelled = False

    def then(self, callback: Callable[[T], None]) -> None:
        """Call `callback` with the value; at once if it is resolved already."""
        if self.resolved:
            callback(cast("T", self._value))
        else:
            self._callback = callback

    def convert(self, conversion: Callable[[T], U]) -> Deferred[U]:
        """The same deferred with its value converted; the code that resolves it need not know."""
        converted = cast("Deferred[U]", self)
        if self.resolved:
            converted._value = conversion(cast("T", self._value))
        else:
            converted._conversion = conversion
        return converted

    def resolve(self, value: T) -> None:
        if self.cancelled or self.resolved:
            return
        self.resolved = True
        if self._conversion is not None:
            value = self._conversion(value)
        callback, self._callback, self._conversion, self._on_cancel = self._callback, None, None, None
        if callback is None:
            self._value = value
        else:
            callback(value)

    def cancel(self) -> None:
        """Drop the value: the connection that waited for it is closed."""
        if self.resolved or self.cancelled:
            return
        self.cancelled = True
        on_cancel, self._callback, self._conversion, self._on_cancel = self._on_cancel, None, None, None
        if on_cancel is not None:
            on_cancel()
