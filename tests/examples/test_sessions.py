"""The sessions example: a session ends after half an hour without a view, and is written once."""

from collections.abc import Callable
from typing import Any

from examples.sessions import sessions

from millrace.testing import PAUSE


def view(user: str, page: str, at: str) -> dict[str, Any]:
    return {"page": page, "user": user, "ms": 12.5, "at": f"2026-11-16T{at}Z"}


def test_views_form_sessions_until_a_gap(run_pipeline: Callable[..., Any]) -> None:
    views = [
        *(view("ada", "/", "12:00:00"), view("bob", "/", "12:01:00"), view("ada", "/cart", "12:20:00")),
        PAUSE,
        *(view("ada", "/checkout", "12:45:00"), view("bob", "/help", "13:00:00")),
        PAUSE,
        view("eve", "/", "15:00:00"),
    ]
    output = run_pipeline(sessions, views=views)
    found = sorted(
        (value["user"], value["began"][11:16], value["ended"][11:16], value["views"], value["first_page"])
        for value in output
    )
    assert found == [
        ("ada", "12:00", "12:45", 3, "/"),
        ("bob", "12:01", "12:01", 1, "/"),
        ("bob", "13:00", "13:00", 1, "/help"),
    ]
    assert output.newest["ada"]["last_page"] == "/checkout"
