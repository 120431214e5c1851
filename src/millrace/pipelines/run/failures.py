"""Classifies and explains the errors of queries: an unavailable broker, a refused mode, or a user's error."""

from __future__ import annotations

import re

from millrace.pipelines.errors import BrokerUnavailable, PipelineError
from millrace.pipelines.topics import reading

_UNAVAILABLE = re.compile(
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
    """Whether the broker was unavailable, so that a retry may help."""
    if isinstance(error, PipelineError):
        return isinstance(error, BrokerUnavailable)
    return _UNAVAILABLE.search(text_of(error)) is not None


def is_refusal(error: BaseException) -> bool:
    """Whether Spark refuses this plan in real-time mode."""
    return _REFUSED.search(text_of(error)) is not None


def explained(error: BaseException, query: str, bootstrap: str, log: str | None = None) -> PipelineError:
    """Explain an error that ended a query in one line."""
    if isinstance(error, PipelineError):
        return error
    details = f"; the details are in {log}" if log else "; MILLRACE_DEBUG=1 shows the traceback"
    if (known := reading.explain(error)) is not None:
        return known
    text = text_of(error)
    if raised := re.search(r"millrace\.pipelines\.errors\.PipelineError: (.*)", text):
        return PipelineError(raised[1])
    if _UNAVAILABLE.search(text):
        return BrokerUnavailable(
            f"the broker at {bootstrap} does not answer; start it, or name another with --bootstrap-server"
        )
    if _STATE.search(text):
        return PipelineError(
            f"{query} does not fit the state in its checkpoint ({first_line(text)}); undo the change, give"
            f" the pipeline another name, or delete the checkpoint{details}"
        )
    explained_error = PipelineError(f"{query} failed: {cause(text)}{details}")
    if trace := own_traceback(text):
        explained_error.add_note(trace)
    return explained_error


def text_of(error: BaseException) -> str:
    """The text of an error and its causes, including those in Java."""
    parts, seen = [], set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        parts.append(f"{type(current).__name__}: {current}")
        if (trace := getattr(current, "_stackTrace", None)) is not None:
            parts.append(str(trace))
        current = current.__cause__ or getattr(current, "_cause", None) or current.__context__
    return "\n".join(parts)


def cause(text: str) -> str:
    """Find the line that names the cause in a report with many stack traces."""
    # The error of a Python function is the last line of its traceback, before Java's frames.
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
    """The frames of a Python traceback that are the user's own, without Spark's and Java's."""
    after = text.rpartition("Traceback (most recent call last)")[2]
    frames = re.findall(r'^  File "[^"\n]+", line \d+.*\n(?:    .*\n)*', after, re.MULTILINE)
    return "".join(frame for frame in frames if not re.search(r'/(pyspark|py4j)/[^"]*"', frame)).rstrip("\n")


def first_line(text: str) -> str:
    """The error that ended a query, shortened to one line."""
    found = re.search(r"terminated with exception: ([^\n]+)", text)
    line = found[1] if found else next((part for part in text.splitlines() if part.strip()), "")
    return _shortened(re.sub(r"^\w+(Exception|Error): ", "", line))


def _shortened(line: str) -> str:
    line = re.sub(r"\s+SQLSTATE: \w+$", "", " ".join(line.split())).rstrip(". ")
    return line if len(line) <= 300 else f"{line[:300]}…"
