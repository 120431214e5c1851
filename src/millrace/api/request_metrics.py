"""Requests, errors and times by API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from millrace.errors import Error, error_of
from millrace.metrics import Family, Histogram, Kind, MetricName, Sample, family
from millrace.steps import Steps
from millrace.wire.schema import Array, Nested, Struct

if TYPE_CHECKING:
    from millrace.api.dispatch import Handler

REQUESTS = MetricName("kafka.network", "RequestMetrics", "RequestsPerSec")
ERRORS = MetricName("kafka.network", "RequestMetrics", "ErrorsPerSec")
TIME = MetricName("kafka.network", "RequestMetrics", "TotalTimeMs")

ERROR_CODE = "error_code"


class ApiMetrics:
    """The requests of one API. Owned by the broker loop; not thread-safe.

    Requests are always counted; their times and errors only while the metrics are watched.
    """

    __slots__ = ("errors", "requests", "times_ms")

    def __init__(self) -> None:
        self.requests = 0
        self.errors: Counter[Error] = Counter()
        self.times_ms = Histogram()

    def answered(self, response: Struct, seconds: float) -> None:
        """Count a response that was there after some time, and the errors in it."""
        self.times_ms.observe(seconds * 1000)
        _counter(type(response), in_steps=False)(response, self.errors)

    def answered_in_steps(self, response: Struct, seconds: float) -> Steps[None]:
        """The same for a response that may be long."""
        self.times_ms.observe(seconds * 1000)
        yield from _counter(type(response), in_steps=True)(response, self.errors)


def families(handlers: Mapping[int, Handler]) -> Steps[list[Family]]:
    """The metrics of every API that was used."""
    used = {handler.name: handler.metrics for handler in handlers.values() if handler.metrics.requests}
    yield
    return [
        family(REQUESTS, Kind.COUNTER, [({"request": name}, api.requests) for name, api in used.items()]),
        family(
            ERRORS,
            Kind.COUNTER,
            [
                ({"request": name, "error": error.name}, count)
                for name, api in used.items()
                for error, count in api.errors.items()
            ],
        ),
        Family(
            TIME,
            Kind.HISTOGRAM,
            [Sample({"request": name}, api.times_ms.distribution()) for name, api in used.items()],
        ),
    ]


# Error codes are in the response itself, or several lists deep. A general search would be slow: each kind of
# response has a function made for it, with a loop for each of these lists.


@cache
def _counter(response: type[Struct], *, in_steps: bool) -> Callable[[Struct, Counter[Error]], Any]:
    """The function that counts the errors in a response; in steps, it is a generator."""
    lines = ["def count(m0, errors):", *_count_lines(response, 0, in_steps)]
    lines.append(" yield" if in_steps else " return")
    namespace: dict[str, Any] = {"error_of": error_of}
    exec("\n".join(lines), namespace)
    count: Callable[[Struct, Counter[Error]], Any] = namespace["count"]
    return count


def _count_lines(struct: type[Struct], depth: int, in_steps: bool) -> Iterator[str]:
    indent, message, element = " " * (depth + 1), f"m{depth}", f"m{depth + 1}"
    if ERROR_CODE in struct.wire_fields:
        yield f"{indent}if {message}.{ERROR_CODE}: errors[error_of({message}.{ERROR_CODE})] += 1"
    for name, field in struct.wire_fields.items():
        value = f"{message}.{name}"
        if isinstance(field.type, Array):
            kind, elements = field.type.element, f"{value} or ()"
        else:
            kind, elements = field.type, f"() if {value} is None else ({value},)"
        inner = list(_count_lines(kind.struct, depth + 1, in_steps)) if isinstance(kind, Nested) else []
        if inner:
            yield f"{indent}for {element} in {elements}:"
            yield from inner
            if in_steps:
                yield f"{indent} yield"
