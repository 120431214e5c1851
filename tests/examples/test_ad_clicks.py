"""The ad-clicks example: a display and a click are joined in whichever order they arrive."""

from collections.abc import Callable
from typing import Any

from examples.ad_clicks import ad_clicks

from millrace.testing import PAUSE


def display(number: int, at: str) -> dict[str, Any]:
    return {"display": f"d{number}", "ad": f"ad-{number}", "page": "/", "displayed": f"2026-11-16T{at}Z"}


def click(number: int, at: str) -> dict[str, Any]:
    return {"click_on": f"d{number}", "user": "ada", "clicked": f"2026-11-16T{at}Z"}


def test_click_is_joined_with_the_display_before_it(run_pipeline: Callable[..., Any]) -> None:
    output = run_pipeline(
        ad_clicks,
        displays=[display(1, "12:00:00"), display(3, "12:00:00"), PAUSE, display(2, "12:00:10")],
        clicks=[click(2, "12:00:20"), click(3, "12:11:00"), PAUSE, click(1, "12:05:00")],
    )
    assert sorted((record.key, record.value["clicked"][11:19]) for record in output.records) == [
        *[("ad-1", "12:05:00"), ("ad-2", "12:00:20")]
    ]
