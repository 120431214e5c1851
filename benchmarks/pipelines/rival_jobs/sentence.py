"""How a job says that it has begun to read: a file in its working directory, whose time is the moment."""

import re
from functools import cache
from pathlib import Path


def words(sentence: str) -> list[str]:
    """The words of a sentence, as examples/word_count.py takes them; the first call is the first read."""
    say_that_it_reads()
    return re.findall(r"\w+", sentence.lower())


@cache
def say_that_it_reads() -> None:
    say("reading")


def say(what: str) -> None:
    Path(what).touch()
