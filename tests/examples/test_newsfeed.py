"""The newsfeed example: news go to the followers of that moment."""

from collections.abc import Callable
from typing import Any

from examples.newsfeed import newsfeed

from millrace.testing import PAUSE, Record


def follow(reader: str, member: str) -> Record:
    return Record({"reader": reader, "member": member}, key=f"{reader}>{member}")


def news(member: str, what: str) -> dict[str, Any]:
    return {"member": member, "what": what, "at": "2026-11-16T12:00:00Z"}


def test_news_go_to_the_followers_of_that_moment(run_pipeline: Callable[..., Any]) -> None:
    output = run_pipeline(
        newsfeed,
        follows=[follow("bob", "ada"), follow("eve", "ada"), PAUSE, Record(None, key="eve>ada")],
        news=[news("ada", "changed jobs"), news("bob", "joined a group"), PAUSE, news("ada", "likes tea")],
    )
    assert sorted((record.key, record.value["what"]) for record in output.records) == [
        *[("bob", "changed jobs"), ("bob", "likes tea"), ("eve", "changed jobs")]
    ]
