"""The windows example: each window is written once, and accepts late views until its watermark."""

from collections.abc import Callable
from typing import Any

from examples.windows import windows

from millrace.testing import ABORT, PAUSE


def view(time: str, page: str = "home") -> dict[str, Any]:
    return {"page": page, "user": "ada", "ms": 20.0, "at": f"2026-11-16T{time}Z"}


def test_views_count_for_the_minute_in_which_they_happened(run_pipeline: Callable[..., Any]) -> None:
    outputs = run_pipeline(
        windows,
        views=[
            view("12:00:10"),
            view("12:00:50"),
            view("12:01:20"),
            ABORT,
            # The watermark is 12:00:50: this view is late, but still accepted.
            view("12:00:59"),
            view("12:02:00"),
            PAUSE,
            # The watermark is 12:01:30: the first minute is written; only longer windows accept this.
            view("12:00:30"),
            view("12:20:00", page="elsewhere"),
        ],
    )
    assert by_start(outputs["minutes"]) == {"12:00": 3, "12:01": 1, "12:02": 1}
    windows_of_five = {"11:56": 3, "11:57": 5, "11:58": 6, "11:59": 6, "12:00": 6, "12:01": 2, "12:02": 1}
    assert by_start(outputs["five_minutes"]) == windows_of_five


def by_start(output: list[dict[str, Any]]) -> dict[str, int]:
    """The views by window; a window that appears twice is an error."""
    found = {row["since"][11:16]: row["views"] for row in output if row["page"] == "home"}
    assert len(found) == len(output)
    return found
