"""The orders example: each order is joined with the customer as of its arrival."""

from collections.abc import Callable
from typing import Any

from examples.orders import orders_with_customers

from millrace.testing import PAUSE, Record


def test_orders_are_joined_with_the_current_customer(run_pipeline: Callable[..., Any]) -> None:
    output = run_pipeline(
        orders_with_customers,
        customers=[
            {"customer": "7", "name": "Ada", "city": "London"},
            {"customer": "8", "name": "Grace", "city": "New York"},
            PAUSE,
            {"customer": "7", "name": "Ada", "city": "Paris"},
            Record(None, key="8"),
        ],
        orders=[
            {"number": 1, "customer": "7", "amount": 9.5},
            {"number": 2, "customer": "unknown", "amount": 1.0},
            PAUSE,
            {"number": 3, "customer": "7", "amount": 2.0},
            {"number": 4, "customer": "8", "amount": 3.0},
        ],
    )
    assert {row["number"]: row.get("city") for row in output} == {1: "London", 2: None, 3: "Paris", 4: None}
    assert sorted(record.key for record in output.records) == ["7", "7", "8", "unknown"]
