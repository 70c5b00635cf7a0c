"""What statements a piece of code sends, how many rows they touch, and how the database means to find them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from storage.engine import Database
from storage.models import metadata
from storage.prepared import observers


@dataclass
class Statements:
    """What was sent, in order."""

    sent: list[tuple[str, Any]] = field(default_factory=list)
    rows: int = 0  # inserted, updated, deleted or returned

    @property
    def texts(self) -> list[str]:
        return [text for text, _ in self.sent]


@contextmanager
def recorded(db: Database) -> Iterator[Statements]:
    """Records this thread's statements inside the block; BEGIN and the like are not among them."""
    found = Statements()
    me = threading.get_ident()

    def after(_conn: Any, cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        if threading.get_ident() == me and not statement.startswith(("BEGIN", "SAVEPOINT", "RELEASE")):
            found.sent.append((statement, parameters[0] if many else parameters))
            found.rows += max(cursor.rowcount, 0)

    def prepared(conn: Any, cursor: Any, statement: str, parameters: Any) -> None:
        if conn.engine is db.engine:
            after(conn, cursor, statement, parameters, None, many=False)

    sa.event.listen(db.engine, "after_cursor_execute", after)
    observers.append(prepared)
    try:
        yield found
    finally:
        observers.remove(prepared)
        sa.event.remove(db.engine, "after_cursor_execute", after)


def plans(db: Database, statements: Statements) -> str:
    """How the database finds the rows of each statement, with what it knows of the tables now."""
    analyse(db)
    prefix = "EXPLAIN QUERY PLAN " if db.is_sqlite else "EXPLAIN "
    lines = []
    with db.read() as conn:
        for text, parameters in statements.sent:
            lines.append(f"-- {text}")
            lines += [str(row[-1]) for row in conn.exec_driver_sql(prefix + text, parameters)]
    return "\n".join(lines)


def analyse(db: Database) -> None:
    """Lets the planner count the rows of the tables."""
    with db.write() as conn:
        conn.execute(sa.text("ANALYZE"))
    if db.is_sqlite:
        db.close()  # a connection reads these counts once, when it first needs the schema


def scans(plan: str) -> list[str]:
    """The lines of a plan that read a whole table or sort what an index should have ordered."""
    return [
        line
        for line in plan.splitlines()
        if not line.startswith("--")
        and (
            (
                line.startswith("SCAN") and line.split()[1] in metadata.tables
            )  # SQLite: of a table or a whole index
            or "Seq Scan" in line
            or "TEMP B-TREE" in line
            or "Sort" in line
        )
    ]
