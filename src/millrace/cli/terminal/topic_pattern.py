"""Topic patterns as Kafka's tools take them: a regular expression, or several with commas between."""

import re

from millrace.cli.terminal.errors import CommandError


def topic_pattern(text: str) -> re.Pattern[str]:
    """The pattern that a topic's whole name has to match."""
    alternatives = text.strip().strip("\"'").replace(" ", "").replace(",", "|")
    try:
        return re.compile(f"(?:{alternatives})\\Z")
    except re.error as error:
        raise CommandError(f"{text!r} is not a regular expression: {error}") from None
