"""Payments without duplicates: the first of all payments with the same number within an hour.

    echo '{"number": "1", "card": "c", "amount": 9.5, "at": "2026-11-16T12:00:00Z"}' |
        millrace console-producer --topic payments
    millrace run examples/payments_once.py
    millrace console-consumer --topic payments-once --from-beginning

The watermark bounds how long a number is remembered.
"""

from pyspark.sql import DataFrame

from millrace.pipelines import log, pipeline


@pipeline(
    payments=log.json("payments", "number string, card string, amount double, at timestamp"),
    output=log.json("payments-once", key="card"),
)
def payments_once(payments: DataFrame) -> DataFrame:
    return payments.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["number"])
