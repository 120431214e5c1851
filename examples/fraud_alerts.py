"""Fraud alerts: a tiny payment and a large one within a minute suggest that a stolen card is being tested.

    echo '{"card": "c", "amount": 0.5, "at": "2026-11-16T12:00:00Z"}
    {"card": "c", "amount": 900, "at": "2026-11-16T12:00:30Z"}' | millrace console-producer --topic payments
    millrace run examples/fraud_alerts.py
    millrace console-consumer --topic fraud-alerts --from-beginning

The rule is a Python class with state per card. Spark keeps the state, and restores it after a crash.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from millrace.pipelines import log, pipeline

SMALL, LARGE, SOON_SECONDS = 1.0, 500.0, 60.0


class CardTest(StatefulProcessor):
    """Remembers the last tiny payment of a card, and reports a large payment soon after it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.tiny = handle.getValueState("tiny", "at double")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for payment in sorted(rows, key=lambda row: row.at):
            at = payment.at.timestamp()
            if payment.amount < SMALL:
                self.tiny.update((at,))
            elif payment.amount > LARGE and (tiny := self.tiny.get()):
                seconds = at - tiny[0]
                if seconds < SOON_SECONDS:
                    yield Row(card=key[0], amount=payment.amount, at=payment.at, seconds=seconds)
                self.tiny.clear()


@pipeline(
    payments=log.json("payments", "number string, card string, amount double, at timestamp"),
    output=log.json("fraud-alerts", key="card"),
)
def fraud_alerts(payments: DataFrame) -> DataFrame:
    return payments.groupBy("card").transformWithState(
        CardTest(), "card string, amount double, at timestamp, seconds double", "append", "none"
    )
