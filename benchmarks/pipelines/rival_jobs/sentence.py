"""How a job says that it has begun to read: a file in its working directory, whose time is the moment."""

import re
from pathlib import Path

_said = False


def words(sentence: str) -> list[str]:
    """The words of a sentence, as examples/word_count.py takes them; the first call is the first read."""
    global _said  # noqa: PLW0603
    if not _said:
        _said = True
        say("reading")
    return re.findall(r"\w+", sentence.lower())


def say(what: str) -> None:
    Path(what).touch()
