"""Mends command lines pasted from slides and word processors, which turn `--` into a long dash."""

import re
from collections.abc import Sequence

_LONG_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_STARTS_LIKE_OPTION = re.compile(rf"(?:[{_LONG_DASHES}]+|--)(?=[A-Za-z])")
_GLUED = re.compile(rf"[{_LONG_DASHES}]+(?=[A-Za-z])")


def mend_pasted(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments with proper dashes, and a note on each that was changed.

    `\u2013list` becomes `--list`; the glued `\u2013from-beginning\u2013topic` becomes two options.
    """
    mended: list[str] = []
    notes: list[str] = []
    for argument in arguments:
        options = _mend(argument)
        if options != [argument]:
            notes.append(f"read {argument!r} as {' '.join(options)}")
        mended += options
    return mended, notes


def _mend(argument: str) -> list[str]:
    start = _STARTS_LIKE_OPTION.match(argument)
    if not start:
        return [argument]
    name, equals, value = argument[start.end() :].partition("=")
    names = [f"--{part}" for part in _GLUED.split(name)]
    names[-1] += equals + value
    return names
