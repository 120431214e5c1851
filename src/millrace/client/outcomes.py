"""Results of a request about several things, of which each may succeed or fail."""

from collections.abc import Iterable, Mapping
from typing import Generic, Self, TypeVar

from millrace.errors import Error, KafkaError, error_of

K = TypeVar("K")
T = TypeVar("T")


class Outcomes(Generic[K, T]):
    """The value or the error of each key.

    `outcomes[key]` is a value, or raises the key's error; `all()` is every value, or raises the first error.
    """

    __slots__ = ("failed", "succeeded")

    def __init__(
        self, succeeded: Mapping[K, T] | None = None, failed: Mapping[K, KafkaError] | None = None
    ) -> None:
        self.succeeded: dict[K, T] = dict(succeeded or {})
        self.failed: dict[K, KafkaError] = dict(failed or {})

    def __repr__(self) -> str:
        return f"Outcomes(succeeded={self.succeeded!r}, failed={self.failed!r})"

    def __getitem__(self, key: K) -> T:
        if key in self.failed:
            raise self.failed[key]
        return self.succeeded[key]

    def all(self) -> dict[K, T]:
        """Every value; raises the first error if there is one."""
        for error in self.failed.values():
            raise error
        return self.succeeded

    def add(self, key: K, value: T, code: int = Error.NONE, message: str | None = None) -> None:
        """Record what a response says about a key: the value, or an error code with its message."""
        if code == Error.NONE:
            self.succeeded[key] = value
        else:
            self.failed[key] = KafkaError(error_of(code), message)

    def update(self, others: "Outcomes[K, T]") -> None:
        """Record the outcomes of other keys as well."""
        self.succeeded |= others.succeeded
        self.failed |= others.failed

    def in_order_of(self, keys: Iterable[K]) -> Self:
        """The same outcomes in the order of these keys."""
        wanted = list(keys)
        self.succeeded = {key: self.succeeded[key] for key in wanted if key in self.succeeded}
        self.failed = {key: self.failed[key] for key in wanted if key in self.failed}
        return self
