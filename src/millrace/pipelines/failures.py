"""What a failed query means: a broker that is away, a mode that Spark refuses, or an error to explain."""

from __future__ import annotations

import re

from millrace.pipelines import reading
from millrace.pipelines.errors import BrokerAway, PipelineError

_AWAY = re.compile(
    r"kafka\.common\.errors\.(TimeoutException|DisconnectException|NetworkException|BrokerNotAvailableException"
    r"|LeaderNotAvailableException|NotLeaderOrFollowerException|CoordinatorNotAvailableException)"
    r"|Timed out waiting for a node assignment|Timeout expired while fetching topic metadata"
    r"|Failed to get records for .* after polling for"
    r"|Local: (Broker transport failure|All broker connections are down|Timed out|Host resolution failure)"
    r"|_TRANSPORT|_ALL_BROKERS_DOWN|_TIMED_OUT|java\.net\.ConnectException"
)
_REFUSED = re.compile(r"REAL_TIME_MODE|real-time mode|CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT", re.I)
_STATE = re.compile(r"STATE_STORE_\w*SCHEMA_NOT_COMPATIBLE|STATEFUL_OPERATOR_NOT_MATCH|STATE_SCHEMA")


def is_about_connection(error: BaseException) -> bool:
    """Whether the broker was away, and trying again may help."""
    if isinstance(error, PipelineError):
        return isinstance(error, BrokerAway)
    return _AWAY.search(text_of(error)) is not None


def is_refusal(error: BaseException) -> bool:
    """Whether Spark does not run this plan in real-time mode."""
    return _REFUSED.search(text_of(error)) is not None


def explained(error: BaseException, query: str, bootstrap: str, log: str | None = None) -> PipelineError:
    """One line for the user about an error that ended a query."""
    if isinstance(error, PipelineError):
        return error
    more = f"; all of it is in {log}" if log else "; MILLRACE_DEBUG=1 shows where it came from"
    if (known := reading.explain(error)) is not None:
        return known
    text = text_of(error)
    if raised := re.search(r"millrace\.pipelines\.errors\.PipelineError: (.*)", text):
        return PipelineError(raised[1])
    if _AWAY.search(text):
        return BrokerAway(f"the broker at {bootstrap} does not answer; start it, or see --bootstrap-server")
    if _STATE.search(text):
        return PipelineError(
            f"{query} does not fit the state in its checkpoint ({first_line(text)}); undo the change, give"
            f" the pipeline another name, or delete the checkpoint{more}"
        )
    told = PipelineError(f"{query} failed: {cause(text)}{more}")
    if trace := own_traceback(text):
        told.add_note(trace)
    return told


def text_of(error: BaseException) -> str:
    """All that an error and its causes say, Java's among them."""
    parts, seen = [], set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        parts.append(f"{type(one).__name__}: {one}")
        if (trace := getattr(one, "_stackTrace", None)) is not None:
            parts.append(str(trace))
        one = one.__cause__ or getattr(one, "_cause", None) or one.__context__
    return "\n".join(parts)


def cause(text: str) -> str:
    """Of a report with many traces the line that says what went wrong."""
    # A Python function's own error is the last line of its traceback, before Java's frames.
    if "Traceback (most recent call last)" in text:
        after = text.rpartition("Traceback (most recent call last)")[2].splitlines()[1:]
        for line in after:
            if re.match(r"[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt|Warning)?: ", line) or re.match(
                r"[A-Za-z_][\w.]*(Error|Exception)$", line
            ):
                return _shortened(line)
    caused = re.findall(r"Caused by: (?:[\w.$]+\.)?([\w$]+(?:: [^\n]+)?)", text)
    return _shortened(caused[-1] if caused else first_line(text))


def own_traceback(text: str) -> str:
    """The user's lines of a Python function's traceback, without Spark's and Java's, if there are any."""
    after = text.rpartition("Traceback (most recent call last)")[2]
    frames = re.findall(r'^  File "[^"\n]+", line \d+.*\n(?:    .*\n)*', after, re.MULTILINE)
    return "".join(frame for frame in frames if not re.search(r'/(pyspark|py4j)/[^"]*"', frame)).rstrip("\n")


def first_line(text: str) -> str:
    """What ended a query, as far as it fits a line."""
    found = re.search(r"terminated with exception: ([^\n]+)", text)
    line = found[1] if found else next((one for one in text.splitlines() if one.strip()), "")
    return _shortened(re.sub(r"^\w+(Exception|Error): ", "", line))


def _shortened(line: str) -> str:
    line = re.sub(r"\s+SQLSTATE: \w+$", "", " ".join(line.split())).rstrip(". ")
    return line if len(line) <= 300 else f"{line[:300]}…"
