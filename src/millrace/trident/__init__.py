"""Trident: exactly-once streams with state, on Spark's micro-batches."""

from millrace.trident import state
from millrace.trident.errors import StateError, TridentError

__all__ = ["StateError", "TridentError", "state"]
