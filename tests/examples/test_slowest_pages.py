"""The slowest-pages example: one record per window, with the five slowest pages."""

from collections.abc import Callable
from typing import Any

from examples.slowest_pages import slowest_pages


def view(page: str, ms: float, at: str) -> dict[str, Any]:
    return {"page": page, "user": "ada", "ms": ms, "at": f"2026-11-16T{at}Z"}


def test_five_slowest_pages_of_each_minute_slowest_first(run_pipeline: Callable[..., Any]) -> None:
    pages = [view(f"/{number}", 100 * number, "12:00:05") for number in range(1, 8)]
    views = [*pages, view("/3", 2000, "12:00:08"), view("/late", 1, "12:05:00")]
    output = run_pipeline(slowest_pages, views=views)
    # Six windows of a minute, ten seconds apart, contain them; those of the last view are still open.
    assert sorted(value["window"]["end"][11:19] for value in output) == [
        *["12:00:10", "12:00:20", "12:00:30", "12:00:40", "12:00:50", "12:01:00"]
    ]
    for value in output:
        assert value["slowest"] == [
            {"page": "/3", "ms": 1150.0},
            *({"page": f"/{number}", "ms": 100.0 * number} for number in (7, 6, 5, 4)),
        ]
