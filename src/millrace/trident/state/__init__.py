"""State of Trident topologies: the rules that make updates exact, and the stores that keep them.

from millrace.trident import state

counts = state.sqlite("counts.db", "word_counts")
counts = state.postgresql("postgresql://localhost/shop", "word_counts", kind="transactional")
"""

from millrace.trident.state.declaration import (
    StateSpec,
    custom,
    log,
    memory,
    postgresql,
    redis,
    sqlite,
)
from millrace.trident.state.map_state import Kind, MapState
from millrace.trident.state.ownership import Transaction
from millrace.trident.state.store import Store

__all__ = [
    "Kind",
    "MapState",
    "StateSpec",
    "Store",
    "Transaction",
    "custom",
    "log",
    "memory",
    "postgresql",
    "redis",
    "sqlite",
]
