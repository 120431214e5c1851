"""The silent-sensors example: a Python function with state and a timeout."""

from collections.abc import Callable
from typing import Any

from examples.silent_sensors import silent_sensors

from millrace.testing import ABORT, PAUSE


def reading(sensor: str, time: str) -> dict[str, Any]:
    return {"sensor": sensor, "celsius": 21.5, "at": f"2026-11-16T{time}Z"}


def test_sensor_is_reported_when_silent_for_five_minutes(
    run_pipeline: Callable[..., Any],
) -> None:
    output = run_pipeline(
        silent_sensors,
        readings=[
            reading("roof", "12:00:00"),
            reading("cellar", "12:00:30"),
            ABORT,
            reading("roof", "12:03:00"),
            reading("garden", "12:05:45"),
            PAUSE,
            reading("cellar", "12:06:00"),
            reading("garden", "12:07:30"),
        ],
    )
    assert output == [{"sensor": "cellar", "silent_since": "2026-11-16T12:00:30.000000Z"}]
