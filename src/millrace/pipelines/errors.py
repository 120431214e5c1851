"""What a user of pipelines may meet: each error is one line that says what is wrong and what to do."""

from __future__ import annotations


class PipelineError(Exception):
    """A pipeline cannot be loaded, started or continued; the message ends with the remedy."""


class BrokerAway(PipelineError):
    """The broker does not answer; it may come back."""
