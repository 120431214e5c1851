"""Errors that users of Trident see. Each is one line: the problem, then what to do about it."""

from __future__ import annotations

from millrace.pipelines.errors import PipelineError


class TridentError(PipelineError):
    """A topology cannot be built or run. The message ends with the remedy."""


class StateError(TridentError):
    """A state cannot be opened, read or written."""


class StoreUnavailable(StateError):
    """The store of a state does not answer. Another attempt may succeed."""
