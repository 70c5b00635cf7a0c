"""How much a database does, as a count that depends on no clock: for comparing the same work at two sizes.

SQLite: instructions of its virtual machine, which grow with every row that a statement visits. Postgres: rows read from
tables and by indexes, as its statistics count them. Only of connections of this `Database`, and on Postgres of this database.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from storage.engine import Database

GRAIN = 20  # SQLite tells of so many instructions at a time
_ROWS_READ = sa.text(
    "SELECT sum(coalesce(seq_tup_read, 0)) + sum(coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables"
)


class DatabaseWork:
    """Counts from its creation on."""

    def __init__(self, db: Database) -> None:
        self.unit = "thousand SQLite instructions" if db.is_sqlite else "rows read"
        self._db = db
        self._ticks = 0
        if db.is_sqlite:
            db.close()  # the connection of all writes is watched from its next use on
            sa.event.listen(db.engine, "checkout", self._watch)

    def so_far(self) -> float:
        """The count until now, in `unit`."""
        if self._db.is_sqlite:
            return self._ticks * GRAIN / 1000
        with (
            self._db.read() as conn
        ):  # the connection that the worker used: what it counted is told at its end
            conn.execute(sa.text("SELECT pg_stat_force_next_flush()"))
        with self._db.read() as conn:
            return float(conn.execute(_ROWS_READ).scalar_one())

    def _watch(self, connection: Any, _record: Any, _proxy: Any) -> None:
        connection.set_progress_handler(self._tick, GRAIN)

    def _tick(self) -> int:
        self._ticks += 1
        return 0
