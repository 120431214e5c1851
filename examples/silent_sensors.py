"""Silent sensors: those that have not reported for five minutes, and the time of their last report.

    millrace run examples/silent_sensors.py
    millrace console-consumer --topic silent-sensors --from-beginning

A Python function keeps state per sensor, and is called again when its timeout expires. The timeout is in
event time, which advances with the records of the other sensors.
"""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from millrace.pipelines import log, pipeline

SILENCE_MS = 5 * 60 * 1000


@pipeline(
    readings=log.json("sensor-readings", "sensor string, celsius double, at timestamp"),
    output=log.json("silent-sensors", key="sensor"),
)
def silent_sensors(readings: DataFrame) -> DataFrame:
    silent = (
        readings.selectExpr("sensor", "at", "unix_millis(at) as at_ms")
        .withWatermark("at", "10 seconds")
        .groupBy("sensor")
        .applyInPandasWithState(
            report_silence,
            "sensor string, last_ms long",
            "last_ms long",
            "append",
            GroupStateTimeout.EventTimeTimeout,
        )
    )
    return silent.selectExpr("sensor", "timestamp_millis(last_ms) as silent_since")


def report_silence(
    key: tuple[Any, ...], readings: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Remember the last report of a sensor; report the sensor when that is too long ago."""
    (last_ms,) = state.get if state.exists else (0,)
    if state.hasTimedOut:
        state.remove()
        yield pd.DataFrame({"sensor": [key[0]], "last_ms": [last_ms]})
        return
    last_ms = max(last_ms, *(int(part["at_ms"].max()) for part in readings))
    state.update((last_ms,))
    state.setTimeoutTimestamp(last_ms + SILENCE_MS)
