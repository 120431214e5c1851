"""A store in a table of PostgreSQL, through SQLAlchemy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from millrace.trident.errors import StateError, StoreUnavailable
from millrace.trident.state.sqlite_table import check_table_name

if TYPE_CHECKING:
    from sqlalchemy import Engine

CONNECT_SECONDS = 10
KEYS_PER_QUERY = 10_000


class SqlTable:
    """Keeps values in a table with the columns key and value, which is created if it is missing."""

    def __init__(self, url: str, table: str) -> None:
        check_table_name(table)
        try:
            import sqlalchemy
        except ImportError as error:
            raise StateError(
                "states in PostgreSQL need SQLAlchemy, which is not installed: pip install 'millrace[states]'"
            ) from error
        self._sql = sqlalchemy
        try:
            address = sqlalchemy.make_url(url)
            if address.drivername in ("postgresql", "postgres"):
                address = address.set(drivername="postgresql+psycopg")
            if address.get_backend_name() != "postgresql":
                raise StateError(
                    f"{address.render_as_string()} is not a PostgreSQL database; write postgresql://host/name"
                )
        except sqlalchemy.exc.ArgumentError as error:
            raise StateError(
                f"{url!r} is not the address of a database; write postgresql://host/name"
            ) from error
        self._label = f"{table} in {address.render_as_string()}"
        self._engine: Engine = sqlalchemy.create_engine(
            address, pool_pre_ping=True, pool_size=1, connect_args={"connect_timeout": CONNECT_SECONDS}
        )
        self._table = sqlalchemy.Table(
            table,
            sqlalchemy.MetaData(),
            sqlalchemy.Column("key", sqlalchemy.Text, primary_key=True),
            sqlalchemy.Column("value", sqlalchemy.Text, nullable=False),
        )
        self._run(self._create)

    def multi_get(self, keys: Sequence[str]) -> list[str | None]:
        found: dict[str, str] = {}

        def read(connection: Any) -> None:
            table = self._table.c
            for start in range(0, len(keys), KEYS_PER_QUERY):
                chunk = list(keys[start : start + KEYS_PER_QUERY])
                rows = connection.execute(
                    self._sql.select(table.key, table.value).where(table.key == self._sql.any_(chunk))
                )
                found.update((row.key, row.value) for row in rows)

        if keys:
            self._run(read)
        return [found.get(key) for key in keys]

    def multi_put(self, keys: Sequence[str], values: Sequence[str]) -> None:
        from sqlalchemy.dialects.postgresql import insert

        rows = [{"key": key, "value": value} for key, value in sorted(zip(keys, values, strict=True))]
        new = insert(self._table)
        upsert = new.on_conflict_do_update(index_elements=["key"], set_={"value": new.excluded.value})
        if rows:
            # Rows are in the order of their keys: two tasks then never wait for each other's rows.
            self._run(lambda connection: connection.execute(upsert, rows))

    def close(self) -> None:
        self._engine.dispose()

    def _create(self, connection: Any) -> None:
        # Two tasks that create a table at once would fail one another.
        connection.execute(self._sql.text("select pg_advisory_xact_lock(hashtext('millrace'))"))
        self._table.create(connection, checkfirst=True)

    def _run(self, work: Any) -> None:
        try:
            with self._engine.begin() as connection:
                work(connection)
        except self._sql.exc.SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
            is_away = isinstance(error, (self._sql.exc.OperationalError, self._sql.exc.InterfaceError))
            raise (StoreUnavailable if is_away else StateError)(
                f"the state {self._label} cannot be used: {reason};"
                " check that the database runs, and that this user may read and write the table"
            ) from error
