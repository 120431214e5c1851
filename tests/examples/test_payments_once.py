"""The payments-once example: a repeated payment is dropped, even after a crash."""

from collections.abc import Callable
from typing import Any

from examples.payments_once import payments_once

from millrace.testing import ABORT


def test_payments_with_one_number_pass_once(run_pipeline: Callable[..., Any]) -> None:
    first, second = (
        {"number": number, "card": "c", "amount": 9.5, "at": "2026-11-16T12:00:00Z"} for number in "12"
    )
    output = run_pipeline(payments_once, payments=[first, first, ABORT, second, first])
    assert sorted(value["number"] for value in output) == ["1", "2"]
