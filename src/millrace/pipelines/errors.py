"""Errors that users of pipelines see. Each is one line: the problem, then what to do about it."""

from __future__ import annotations


class PipelineError(Exception):
    """A pipeline cannot be loaded, started or resumed. The message ends with the remedy."""


class BrokerUnavailable(PipelineError):
    """The broker does not answer. A retry may succeed."""


# The old name, for one release.
BrokerAway = BrokerUnavailable
