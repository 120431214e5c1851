"""Times and durations of `--to-datetime` and `--by-duration`."""

import re
from datetime import UTC, datetime, timedelta

from millrace.cli.terminal.errors import CommandError

_DURATION = re.compile(
    r"(?P<sign>[-+]?)P(?=.*\d)(?:(?P<days>[-+]?\d+)D)?"
    r"(?:T(?=.*\d)(?:(?P<hours>[-+]?\d+)H)?(?:(?P<minutes>[-+]?\d+)M)?"
    r"(?:(?P<seconds>[-+]?\d+(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE,
)


def parse_moment(text: str) -> int:
    """Parse `2024-05-01T12:00:00.000` into Unix milliseconds; UTC unless a zone is given."""
    try:
        moment = datetime.fromisoformat(text) if "T" in text else None
    except ValueError:
        moment = None
    if moment is None:
        raise CommandError(
            f"--to-datetime {text}: write YYYY-MM-DDThh:mm:ss.sss, optionally followed by Z or +hh:mm"
        )
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_duration(text: str) -> timedelta:
    """Parse `P1DT2H30M`: days, hours, minutes and seconds in ISO 8601."""
    parsed = _DURATION.fullmatch(text)
    if parsed is None:
        raise CommandError(
            f"--by-duration {text}: write PnDTnHnMnS, e.g. P1D for a day or PT30M for half an hour"
        )
    parts = parsed.groupdict()
    sign = -1 if parts.pop("sign") == "-" else 1
    return sign * timedelta(
        **{name: float(value.replace(",", ".")) for name, value in parts.items() if value}
    )
