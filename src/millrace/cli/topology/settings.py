"""Settings of topologies as words of a command line."""

import json
from collections.abc import Iterable
from typing import Any

from millrace.cli.terminal.options import parse_pairs


def typed_settings(words: Iterable[str]) -> dict[str, Any]:
    """Parse `key=value` words; a value is a number or a truth value if it looks like one."""
    return {name: _typed(text) for name, text in parse_pairs(words, "--config").items()}


def _typed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
