"""The word count example: counts grow with every sentence, and survive a crash."""

from collections.abc import Callable
from typing import Any

from examples.word_count import word_count

from millrace.testing import ABORT


def test_words_are_counted_across_a_crash(run_pipeline: Callable[..., Any]) -> None:
    output = run_pipeline(
        word_count, sentences=["the cow jumped over the moon", ABORT, "The moon is over Zürich."]
    )
    assert {word: value["count"] for word, value in output.newest.items()} == {
        **{"the": 3, "cow": 1, "jumped": 1, "over": 2, "moon": 2, "is": 1, "zürich": 1}
    }
