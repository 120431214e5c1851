"""Map states with Trident's rules: values by key, each updated once per batch.

A batch may come again after a crash, when some of its updates are written already and others are not. Each
row tells them apart by itself:

| kind | a row keeps | a batch that comes again |
|---|---|---|
| non-transactional | the value | is counted again |
| transactional | the value, its transaction | changes nothing; it must hold the same tuples as before |
| opaque | the value, its transaction, the value before it | starts from the value before; tuples may differ |
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from millrace.trident.errors import StateError
from millrace.trident.state import text
from millrace.trident.state.ownership import Transaction
from millrace.trident.state.store import Store

Kind = Literal["opaque", "transactional", "non-transactional"]
KINDS: tuple[Kind, ...] = ("opaque", "transactional", "non-transactional")

Update = Callable[[Any], Any]
"""Returns the new value for the current one, which is None if there is none."""
Key = Sequence[Any]


class Row(NamedTuple):
    """A row of a state."""

    transaction: Transaction | None
    value: Any
    previous: Any = None


class MapState:
    """A map state over a store. Between `begin_commit` and `commit` it keeps all updates of a batch.

    One thread may use it. `cache` is the number of rows that it keeps in memory, which only the single writer
    of a state may do.
    """

    def __init__(self, name: str, kind: Kind, store: Store, *, cache: int = 0) -> None:
        if kind not in KINDS:
            raise StateError(f"a state cannot be {kind!r}; choose one of {', '.join(KINDS)}")
        self.name = name
        self.kind: Kind = kind
        self._store = store
        self._cache_size = cache
        self._cache: OrderedDict[str, str | None] = OrderedDict()
        self._transaction: Transaction | None = None
        self._read: dict[str, Row | None] = {}
        """The rows of this batch as they are in the store."""
        self._new: dict[str, Any] = {}
        """The values that this batch has written so far, not yet in the store."""

    # A batch

    def begin_commit(self, transaction: Transaction | None) -> None:
        """Begin a batch. Queries outside of batches have no transaction."""
        self._forget_batch()
        self._transaction = transaction

    def commit(self, transaction: Transaction | None) -> None:
        """Write the updates of the batch."""
        if transaction != self._transaction:
            raise StateError(
                f"{self.name}: {transaction} ends, but {self._transaction} began; end what began last"
            )
        try:
            if self._new:
                keys = list(self._new)
                rows = [self._encoded(key, value) for key, value in self._new.items()]
                self._store.multi_put(keys, rows)
                self._remember(keys, rows)
        except BaseException:
            # Some rows may be written.
            self._cache.clear()
            raise
        finally:
            self._forget_batch()
            self._transaction = None

    # Values

    def multi_get(self, keys: Sequence[Key]) -> list[Any]:
        """The value of each key; None for a key that has none.

        In an opaque state a batch that comes again sees the values from before its first attempt.
        """
        names = [text.encode_key(key) for key in keys]
        self._load(names)
        return [self._new[name] if name in self._new else self._visible(self._read[name]) for name in names]

    def multi_update(self, keys: Sequence[Key], updates: Sequence[Update]) -> list[Any]:
        """Update the value of each key, unless this transaction has; return the new values."""
        names = [text.encode_key(key) for key in keys]
        self._load(names)
        return [self._updated(name, update) for name, update in zip(names, updates, strict=True)]

    def multi_put(self, keys: Sequence[Key], values: Sequence[Any]) -> None:
        """Replace the value of each key."""
        names = [text.encode_key(key) for key in keys]
        if self.kind == "opaque":
            # The rows keep the values from before this transaction.
            self._load(names)
        self._new.update(zip(names, values, strict=True))

    def close(self) -> None:
        self._store.close()

    # Rules

    def _updated(self, name: str, update: Update) -> Any:
        row = self._read[name]
        if name in self._new:
            current = self._new[name]
        elif self.kind == "transactional" and row is not None and row.transaction == self._transaction:
            return row.value
        else:
            current = self._visible(row)
        self._new[name] = new = update(current)
        return new

    def _visible(self, row: Row | None) -> Any:
        if row is None:
            return None
        if self.kind == "opaque" and self._transaction is not None and row.transaction == self._transaction:
            return row.previous
        return row.value

    def _encoded(self, name: str, value: Any) -> str:
        if self.kind == "non-transactional":
            return text.encode(value)
        # An update outside of batches, such as one that a user makes by hand, belongs to no transaction.
        transaction = list(self._transaction) if self._transaction is not None else [-1, -1]
        if self.kind == "transactional":
            return text.encode([*transaction, value])
        return text.encode([*transaction, value, self._visible(self._read[name])])

    def _decoded(self, row: str) -> Row:
        content = text.decode(row)
        if self.kind == "non-transactional":
            return Row(None, content)
        query, batch, value, *previous = content
        found = Row(Transaction(query, batch), value, *previous)
        now = self._transaction
        if now is not None and query == now.query and batch > now.batch:
            raise StateError(
                f"the state {self.name} already has updates of batch {batch}, and this is batch {now.batch}"
                " of the same query: its checkpoint is an old copy; restore the newest one, or start a new"
                " checkpoint and a new state"
            )
        return found

    # Reading

    def _load(self, names: Sequence[str]) -> None:
        """Read the rows that this batch has not read yet."""
        missing = list(dict.fromkeys(name for name in names if name not in self._read))
        if self._transaction is None:
            # Outside of batches every query reads what is there now.
            self._read.clear()
            missing = list(dict.fromkeys(names))
        unknown = [name for name in missing if name not in self._cache]
        known = {name: self._cache[name] for name in missing if name in self._cache}
        found = self._store.multi_get(unknown) if unknown else []
        if len(found) != len(unknown):
            raise StateError(
                f"the store of {self.name} returned {len(found)} values for {len(unknown)} keys;"
                " multi_get must return one for each"
            )
        known.update(zip(unknown, found, strict=True))
        for name in missing:
            row = known[name]
            self._read[name] = None if row is None else self._decoded(row)
        self._remember(unknown, found)

    def _remember(self, names: Sequence[str], rows: Sequence[str | None]) -> None:
        if not self._cache_size:
            return
        for name, row in zip(names, rows, strict=True):
            self._cache[name] = row
            self._cache.move_to_end(name)
        while len(self._cache) > self._cache_size:
            self._cache.popitem(last=False)

    def _forget_batch(self) -> None:
        self._read.clear()
        self._new.clear()
