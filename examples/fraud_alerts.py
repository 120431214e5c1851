"""Fraud alerts: a card that pays next to nothing, and much within the minute, is being tried out.

    echo '{"card": "c", "amount": 0.5, "at": "2026-11-16T12:00:00Z"}
    {"card": "c", "amount": 900, "at": "2026-11-16T12:00:30Z"}' | millrace console-producer --topic payments
    millrace run examples/fraud_alerts.py
    millrace console-consumer --topic fraud-alerts --from-beginning

The rule is a Python class with state per card; Spark keeps that state, and restores it after a crash.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from millrace.pipelines import log, pipeline

SMALL, LARGE, SOON_SECONDS = 1.0, 500.0, 60.0


class TriedOut(StatefulProcessor):
    """Remembers when a card last paid next to nothing, and reports a large payment soon after."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.tried = handle.getValueState("tried", "at double")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for payment in sorted(rows, key=lambda row: row.at):
            at = payment.at.timestamp()
            if payment.amount < SMALL:
                self.tried.update((at,))
            elif payment.amount > LARGE and (tried := self.tried.get()):
                seconds = at - tried[0]
                if seconds < SOON_SECONDS:
                    yield Row(card=key[0], amount=payment.amount, at=payment.at, seconds=seconds)
                self.tried.clear()


@pipeline(
    payments=log.json("payments", "number string, card string, amount double, at timestamp"),
    output=log.json("fraud-alerts", key="card"),
)
def fraud_alerts(payments: DataFrame) -> DataFrame:
    return payments.groupBy("card").transformWithState(
        TriedOut(), "card string, amount double, at timestamp, seconds double", "append", "none"
    )
