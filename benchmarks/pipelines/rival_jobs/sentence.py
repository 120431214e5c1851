"""Reports a job's first read: by a file in its working directory, whose time is the time of the read."""

import re
from functools import cache
from pathlib import Path


def words(sentence: str) -> list[str]:
    """The words of a sentence, split like in examples/word_count.py; the first call is the first read."""
    say_that_it_reads()
    return re.findall(r"\w+", sentence.lower())


@cache
def say_that_it_reads() -> None:
    say("reading")


def say(what: str) -> None:
    Path(what).touch()
