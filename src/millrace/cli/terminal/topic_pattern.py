"""Topic patterns of Kafka's tools: a regular expression, or several separated by commas."""

import re

from millrace.cli.terminal.errors import CommandError


def topic_pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern that a topic's whole name must match."""
    alternatives = text.strip().strip("\"'").replace(" ", "").replace(",", "|")
    try:
        return re.compile(f"(?:{alternatives})\\Z")
    except re.error as error:
        raise CommandError(f"{text!r} is not a regular expression: {error}") from None
