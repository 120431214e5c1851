"""The payments-once example: a payment that comes again is left out, whatever crashes in between."""

from collections.abc import Callable
from typing import Any

from examples.payments_once import payments_once

from millrace.testing import ABORT


def test_the_same_number_comes_through_once(run_pipeline: Callable[..., Any]) -> None:
    first, second = (
        {"number": number, "card": "c", "amount": 9.5, "at": "2026-11-16T12:00:00Z"} for number in "12"
    )
    output = run_pipeline(payments_once, payments=[first, first, ABORT, second, first])
    assert sorted(value["number"] for value in output) == ["1", "2"]
