"""The fraud-alerts example: the state of a card survives batches and crashes."""

from collections.abc import Callable
from typing import Any

from examples.fraud_alerts import fraud_alerts

from millrace.testing import ABORT


def payment(card: str, amount: float, at: str) -> dict[str, Any]:
    return {"number": f"{card}-{at}", "card": card, "amount": amount, "at": f"2026-11-16T{at}Z"}


def test_tiny_payment_and_a_large_one_soon_after_raise_an_alert(run_pipeline: Callable[..., Any]) -> None:
    payments = [
        *(
            payment("tried", 0.5, "12:00:00"),
            payment("slow", 0.5, "12:00:00"),
            payment("poor", 0.5, "12:00:00"),
        ),
        ABORT,
        *(
            payment("tried", 900, "12:00:30"),
            payment("slow", 900, "12:02:00"),
            payment("poor", 9, "12:00:30"),
        ),
        payment("rich", 900, "12:00:30"),
    ]
    output = run_pipeline(fraud_alerts, payments=payments)
    [alert] = output
    assert alert.pop("at").startswith("2026-11-16T12:00:30")
    assert alert == {"card": "tried", "amount": 900.0, "seconds": 30.0}
