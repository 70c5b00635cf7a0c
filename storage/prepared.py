"""Statements of the hot path: compiled once, then run on the driver's own cursor.

Building, compiling and executing a statement through SQLAlchemy costs several times what the database does for it, and
on SQLite all of it counts while the one write lock is held. A `Prepared` is an ordinary SQLAlchemy statement, with its
types' conversions and its errors; only the way to the driver is shorter.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.exc import DBAPIError

Convert = Callable[[Any], Any]
Observer = Callable[[Connection, Any, str, Any], None]

MOST_ROWS = 2**31 - 1  # as a LIMIT, where a reader wants them all
# Told of every statement, with its cursor and parameters: SQLAlchemy's events are not.
observers: list[Observer] = []


class Prepared:
    """One statement, as often as wanted, with other values. Thread-safe.

    No IN of a list, whose text depends on its values. `returning` are the columns that it gives back, in order;
    `columns` those that an INSERT without `values` fills.
    """

    def __init__(
        self,
        statement: sa.Insert | sa.Update | sa.Select[Any],
        *,
        returning: Sequence[sa.ColumnElement[Any]] = (),
        columns: Sequence[str] | None = None,
    ) -> None:
        self._statement = statement
        self._columns = columns
        self._returning = returning
        self._row: Any = namedtuple("Returned", [column.name for column in returning])  # type: ignore[misc]  # noqa: PYI024 - its names are known only here
        self._compiled: dict[str, _Compiled] = {}

    def run(self, conn: Connection, values: Mapping[str, Any]) -> int:
        """Runs it once and returns how many rows it met. Raises DBAPIError, as `Connection.execute` does."""
        return int(self._execute(conn, values)[1].rowcount)

    def run_each(self, conn: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Runs it once for each of the rows. Raises DBAPIError."""
        for values in rows:
            self._execute(conn, values)

    def one_or_none(self, conn: Connection, values: Mapping[str, Any]) -> Any | None:
        """The one row that it returns, its columns as attributes; None where it met none. Raises DBAPIError."""
        found = self.all(conn, values)
        return found[0] if found else None

    def all(self, conn: Connection, values: Mapping[str, Any]) -> list[Any]:
        """Every row that it returns, their columns as attributes. Raises DBAPIError."""
        compiled, cursor = self._execute(conn, values)
        try:
            rows = cursor.fetchall()
        except conn.dialect.loaded_dbapi.Error as error:
            raise_driver_error(conn, error, compiled.text)
        if compiled.results is None:
            compiled.results = self._results(conn.dialect, cursor.description)
        return [self._row(*compiled.converted(row)) for row in rows]

    def _results(self, dialect: Dialect, description: Sequence[Any]) -> list[tuple[int, Convert]]:
        """The conversions of what comes back, by the types that the driver names."""
        found: list[tuple[int, Convert]] = []
        for position, (column, told) in enumerate(zip(self._returning, description, strict=True)):
            convert = column.type.dialect_impl(dialect).result_processor(dialect, told[1])
            if convert is not None:
                found.append((position, convert))
        return found

    def _execute(self, conn: Connection, values: Mapping[str, Any]) -> tuple[_Compiled, Any]:
        compiled = self._compiled.get(conn.dialect.name) or self._compile(conn.dialect)
        driver: Any = conn.connection.driver_connection
        given = compiled.parameters(values)
        try:
            if compiled.by_position:
                cursor = driver.execute(compiled.text, given)
            else:  # psycopg: planned once for a connection, not only from the sixth time on
                cursor = driver.execute(compiled.text, given, prepare=True)
        except conn.dialect.loaded_dbapi.Error as error:
            raise_driver_error(conn, error, compiled.text)
        for observe in observers:
            observe(conn, cursor, compiled.text, given)
        return compiled, cursor

    def _compile(self, dialect: Dialect) -> _Compiled:
        made = self._statement.compile(dialect=dialect, column_keys=self._columns)
        assert not made.post_compile_params, f"an IN makes its text depend on the values: {made}"
        assert not made.prefetch, f"a default that Python works out is not filled in here: {made}"
        inputs = {
            name: (bound.value, bound.type.dialect_impl(dialect).bind_processor(dialect))
            for bound, name in made.bind_names.items()
        }
        order = made.positiontup or list(inputs)
        compiled = _Compiled(
            str(made), made.positiontup is not None, [(name, *inputs[name]) for name in order]
        )
        self._compiled[dialect.name] = compiled
        return compiled


@dataclass(slots=True)
class _Compiled:
    text: str
    by_position: bool  # how the driver takes its parameters
    inputs: Sequence[
        tuple[str, Any, Convert | None]
    ]  # name, the value that the statement itself holds, conversion
    results: Sequence[tuple[int, Convert]] | None = None  # by position; known once there was an answer

    def parameters(self, values: Mapping[str, Any]) -> tuple[Any, ...] | dict[str, Any]:
        given = [
            values.get(name, own) if convert is None else convert(values.get(name, own))
            for name, own, convert in self.inputs
        ]
        if self.by_position:
            return tuple(given)
        return {name: value for (name, _, _), value in zip(self.inputs, given, strict=True)}

    def converted(self, row: Sequence[Any]) -> Sequence[Any]:
        if not self.results:
            return row
        given = list(row)
        for position, convert in self.results:
            given[position] = convert(given[position])
        return given


def raise_driver_error(conn: Connection, error: Exception, text: str) -> NoReturn:
    """Raises what SQLAlchemy would have made of a driver's error, and gives up a connection that is gone."""
    dbapi: Any = conn.dialect.loaded_dbapi
    gone = conn.dialect.is_disconnect(error, conn.connection.driver_connection, None)  # type: ignore[arg-type]  # a driver's error, which has no common type
    if gone:
        conn.invalidate(error)
    raise DBAPIError.instance(
        text, None, error, dbapi.Error, connection_invalidated=gone, dialect=conn.dialect
    ) from error
