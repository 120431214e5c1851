"""Repairs command lines pasted from slides and word processors, which turn `--` into a long dash."""

import re
from collections.abc import Sequence

_LONG_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_STARTS_LIKE_OPTION = re.compile(rf"(?:[{_LONG_DASHES}]+|--)(?=[A-Za-z])")
_GLUED = re.compile(rf"[{_LONG_DASHES}]+(?=[A-Za-z])")


def repair_pasted(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments with proper dashes, and a note about each change.

    `\u2013list` becomes `--list`; the glued `\u2013from-beginning\u2013topic` becomes two options.
    """
    repaired: list[str] = []
    notes: list[str] = []
    for argument in arguments:
        options = _repair(argument)
        if options != [argument]:
            notes.append(f"read {argument!r} as {' '.join(options)}")
        repaired += options
    return repaired, notes


def _repair(argument: str) -> list[str]:
    start = _STARTS_LIKE_OPTION.match(argument)
    if not start:
        return [argument]
    name, equals, value = argument[start.end() :].partition("=")
    names = [f"--{part}" for part in _GLUED.split(name)]
    names[-1] += equals + value
    return names
