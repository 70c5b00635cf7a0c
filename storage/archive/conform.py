"""What a record of an archive must be like to become a row: as strict as the tables, on either database.

The tables' own checks would refuse a whole job for one value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from storage import models
from storage.text import clean_json, clean_text

MOST_INDEXED = 500  # characters of a text that an index holds: Postgres has a limit of its own
LATEST = 253_402_300_799.0  # the last second of the year 9999: later times cannot be shown
_BITS = 30  # of an integer: one less than the column has, so that counters can go on


class Unfit(ValueError):
    """The record cannot become a row; says why."""


def fit(column: sa.Column[Any], value: Any) -> Any:
    """The value as the column takes it, its text cleaned. Raises Unfit."""
    if value is None:
        if column.nullable:
            return None
        raise Unfit(f"{column.name} is null")
    if isinstance(column.type, sa.JSON):
        _of(column, value, _SHAPES.get(column.name, dict))
        try:
            return clean_json(value)
        except RecursionError:
            raise Unfit(f"{column.name} is nested too deeply") from None
    if isinstance(column.type, sa.LargeBinary):
        return _of(column, value, bytes)
    if isinstance(column.type, sa.Boolean):
        return _of(column, value, bool)
    if isinstance(column.type, sa.Integer):
        bits = 63 if isinstance(column.type, sa.BigInteger) else _BITS
        if not -(1 << bits) <= _of(column, value, int) < 1 << bits:
            raise Unfit(f"{column.name} is out of range")
        return value
    if isinstance(column.type, sa.Double):
        return _number(column, _of(column, value, float, int))
    text = clean_text(_of(column, value, str))
    if len(text) > MOST_INDEXED and column in _INDEXED:
        raise Unfit(f"{column.name} is longer than {MOST_INDEXED} characters")
    return text


def _of(column: sa.Column[Any], value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise Unfit(f"{column.name} is {type(value).__name__}, not {kinds[0].__name__}")
    return value


def _number(column: sa.Column[Any], value: float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    is_time = column.name == "at" or column.name.endswith("_at")
    if not math.isfinite(number) or (is_time and not 0 <= number <= LATEST):
        raise Unfit(f"{column.name} is out of range")
    return number


def row_of(table: sa.Table, record: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The table's row from a record; a column that it leaves out has its default. Raises Unfit."""
    row: dict[str, Any] = {}
    for name in names:
        column = table.c[name]
        if name in record:
            row[name] = fit(column, record[name])
        elif column.server_default is not None:
            row[name] = default_of(column)
        elif column.nullable:
            row[name] = None
        else:
            raise Unfit(f"without {name}")
    _check(table, row)
    return row


def usual_row(table: sa.Table, values: Mapping[str, Any]) -> dict[str, Any]:
    """A whole row of one of a job's tables from the values that matter. Raises Unfit."""
    return row_of(table, values, [column.name for column in table.columns if column.name != "job_id"])


def default_of(column: sa.Column[Any]) -> Any:
    """What the database writes into a column that is not named."""
    default = column.server_default
    assert isinstance(default, sa.DefaultClause)
    text = str(default.arg)
    if isinstance(column.type, sa.Boolean):
        return text == "true"
    if isinstance(column.type, sa.Integer):
        return int(text)
    return float(text) if isinstance(column.type, sa.Double) else text.strip("'")


def _check(table: sa.Table, row: Mapping[str, Any]) -> None:
    """The table's CHECKs, and what the program relies on."""
    for name in ("seq", "number"):
        if row.get(name, 1) < 1:
            raise Unfit(f"{name} is out of range")
    for call in row.get("tool_calls") or ():
        if not isinstance(call, dict) or not all(isinstance(call.get(name), str) for name in _CALL):
            raise Unfit("tool_calls are no calls")
    for name, known in _KNOWN.get(table.name, {}).items():
        if row[name] not in known:
            raise Unfit(f"{name} {str(row[name])[:40]!r} is not known")
    if table is models.messages and (row["role"] == "tool") != (row["tool_call_id"] is not None):
        raise Unfit("a tool's message without the id of its call, or another one with it")
    if table is models.tool_calls and (row["state"] == "done") != (row["result_seq"] is not None):
        raise Unfit("a call that is done without a result, or another one with it")


_SHAPES: dict[str, type] = {"tool_calls": list}  # of JSON columns; else an object
_CALL = ("id", "name", "arguments")
_KNOWN: dict[str, dict[str, tuple[str, ...]]] = {
    "messages": {"role": ("system", "user", "assistant", "tool")},
    "tool_calls": {"state": ("open", "parked", "done")},
    "comments": {"kind": ("comment", "question", "result")},
    "summaries": {"kind": ("compaction", "final")},
}
_INDEXED = {
    column
    for table in models.metadata.sorted_tables
    for index in (*table.indexes, *table.constraints)
    if isinstance(index, sa.Index | sa.UniqueConstraint | sa.PrimaryKeyConstraint)
    for column in index.columns
}
