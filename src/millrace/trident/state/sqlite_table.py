"""A store in a table of an SQLite file."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from millrace.trident.errors import StateError

# SQLite allows 32,766 parameters in a statement.
KEYS_PER_QUERY = 10_000
BUSY_SECONDS = 30.0
_LEGAL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_table_name(table: str) -> None:
    """Refuse a table name that would need quotes, since it becomes a part of statements."""
    if not _LEGAL_NAME.fullmatch(table):
        raise StateError(f"a table cannot be called {table!r}; use letters, digits and '_'")


class SqliteTable:
    """Keeps values in a table with the columns key and value. One thread may use it."""

    def __init__(self, path: str | Path, table: str) -> None:
        check_table_name(table)
        self._file = Path(path).expanduser()
        self._table = table
        if not self._file.parent.is_dir():
            raise StateError(f"there is no directory {self._file.parent} for the state {table}; create it")
        try:
            # Spark calls a query's batches from threads of its own, one at a time.
            self._connection = sqlite3.connect(self._file, timeout=BUSY_SECONDS, check_same_thread=False)
            # Readers do not wait for the writer, and a commit survives a power cut.
            self._connection.execute("pragma journal_mode = wal")
            self._connection.execute("pragma synchronous = full")
            self._connection.execute(
                f"create table if not exists {table}"
                " (key text primary key, value text not null) without rowid"
            )
            self._connection.commit()
        except sqlite3.Error as error:
            raise self._explained(error) from error

    def multi_get(self, keys: Sequence[str]) -> list[str | None]:
        found: dict[str, str] = {}
        try:
            for start in range(0, len(keys), KEYS_PER_QUERY):
                chunk = keys[start : start + KEYS_PER_QUERY]
                marks = ",".join("?" * len(chunk))
                found.update(
                    self._connection.execute(
                        f"select key, value from {self._table} where key in ({marks})", chunk
                    )
                )
        except sqlite3.Error as error:
            raise self._explained(error) from error
        return [found.get(key) for key in keys]

    def multi_put(self, keys: Sequence[str], values: Sequence[str]) -> None:
        try:
            with self._connection:
                self._connection.executemany(
                    f"insert into {self._table} (key, value) values (?, ?)"
                    " on conflict (key) do update set value = excluded.value",
                    zip(keys, values, strict=True),
                )
        except sqlite3.Error as error:
            raise self._explained(error) from error

    def close(self) -> None:
        self._connection.close()

    def _explained(self, error: sqlite3.Error) -> StateError:
        return StateError(
            f"the state {self._table} in {self._file} cannot be used: {error};"
            " check that the file is an SQLite database that this user may write"
        )
