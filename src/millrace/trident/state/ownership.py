"""The owner of a state: the query whose batches it counts.

Batch ids start at 0 with every new checkpoint. A state that compared bare ids would skip the first batches of
a new query without a word. A transaction is therefore a batch of a query, and the state keeps a list of the
queries that have written to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from millrace.trident.errors import StateError
from millrace.trident.state import text
from millrace.trident.state.store import Store

# No key of a row: those are JSON arrays.
OWNER_KEY = "owner"


class Transaction(NamedTuple):
    """A batch of a query. The query is its number in the state's list of queries."""

    query: int
    batch: int


@dataclass
class Owner:
    """The record of a state about itself."""

    kind: str
    queries: list[str] = field(default_factory=list)
    """The ids of the queries that have written to the state."""
    owner: int | None = None
    """The number of the query that may write to it now."""


def take_over(store: Store, name: str, kind: str, query: str, *, adopt: bool = False) -> int:
    """Make a query the owner of a state, and return its number.

    Raises StateError if another query owns the state, unless `adopt` is set, and if the state is of another
    kind.
    """
    record = read_owner(store, name, kind) or Owner(kind)
    if record.owner is not None and record.queries[record.owner] == query:
        return record.owner
    if record.owner is not None and not adopt and kind != "non-transactional":
        raise StateError(
            f"the state {name} belongs to the query {record.queries[record.owner]}, and this is {query},"
            " which counts batches from 0 again: an update of one could be taken for one of the other;"
            " continue from the former checkpoint, use another state, or pass --adopt-state to add to it"
        )
    if query not in record.queries:
        record.queries.append(query)
    # A query that comes back finds its own updates under its former number.
    record.owner = record.queries.index(query)
    store.multi_put([OWNER_KEY], [text.encode(asdict(record))])
    return record.owner


def read_owner(store: Store, name: str, kind: str) -> Owner | None:
    """The record of a state about itself; raises StateError if the state is of another kind."""
    found: Sequence[str | None] = store.multi_get([OWNER_KEY])
    if found[0] is None:
        return None
    record = Owner(**text.decode(found[0]))
    if record.kind != kind:
        raise StateError(
            f"the state {name} is {record.kind} and not {kind}: its rows have another form;"
            f" declare kind={record.kind!r}, or use another state"
        )
    return record
