"""Migrations only add, so that the version before goes on beside the new one; or they say that they take something away."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from storage import migrate
from storage.engine import Database

FIRST = "0016"  # the first whose programs look at the floor


@pytest.fixture
def empty(database_url: str) -> Iterator[Database]:
    """A database without tables."""
    database = Database(database_url)
    yield database
    database.close()


def _shape(db: Database) -> dict[str, dict[str, Any]]:
    """Each table with what a program that writes to it must know."""
    with db.read() as conn:
        inspector = sa.inspect(conn)
        return {
            table: {
                "columns": {column["name"]: column for column in inspector.get_columns(table)},
                "rules": {
                    repr(rule)
                    for kind in (
                        inspector.get_check_constraints,
                        inspector.get_foreign_keys,
                        inspector.get_unique_constraints,
                    )
                    for rule in kind(table)
                }
                | {repr(index["column_names"]) for index in inspector.get_indexes(table) if index["unique"]}
                | {repr(inspector.get_pk_constraint(table))},
            }
            for table in inspector.get_table_names()
        }


def taken_away(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> list[str]:
    """What a program that knows only `before` can no longer do."""
    found = [f"no table {table}" for table in before if table not in after]
    for table in before.keys() & after.keys():
        old, new = before[table]["columns"], after[table]["columns"]
        found += [f"no column {table}.{name}" for name in old if name not in new]
        for name in old.keys() & new.keys():
            if str(old[name]["type"]) != str(new[name]["type"]):
                found.append(f"another type of {table}.{name}")
            if (old[name]["nullable"] and not new[name]["nullable"]) or (
                old[name]["default"] and not new[name]["default"]
            ):
                found.append(f"{table}.{name} must be given")
        found += [
            f"{table}.{name} must be given"
            for name in new.keys() - old.keys()
            if not new[name]["nullable"] and new[name]["default"] is None
        ]
        found += [
            f"a rule of {table}: {rule}" for rule in sorted(after[table]["rules"] - before[table]["rules"])
        ]
    return sorted(found)


def test_each_migration_only_adds_or_says_why_not(empty: Database) -> None:
    """One that takes something away names its reason as CONTRACT, and shuts out the programs that do not know it."""
    known = migrate.revisions()
    migrate.upgrade(empty, known[known.index(FIRST) - 1])
    before = _shape(empty)
    for revision in known[known.index(FIRST) :]:
        migrate.upgrade(empty, revision)
        after = _shape(empty)
        file = next(file for file in (migrate._MIGRATIONS / "versions").glob(f"{revision}_*.py"))
        module = importlib.import_module(f"storage.migrations.versions.{file.stem}")
        lost = taken_away(before, after)
        if getattr(module, "CONTRACT", ""):
            assert lost, f"{file.name} takes nothing away"
            assert migrate.oldest_program(empty) == revision
        else:
            assert lost == [], f"{file.name}: see docs/adr/0004-expand-then-contract.md"
            assert migrate.oldest_program(empty) < revision or revision == FIRST
        before = after


CHANGES = [
    ("CREATE TABLE later (id INTEGER PRIMARY KEY)", ""),
    ("ALTER TABLE comments ADD COLUMN later TEXT", ""),
    ("ALTER TABLE comments ADD COLUMN later TEXT NOT NULL DEFAULT 'x'", ""),
    ("CREATE INDEX later ON comments (author)", ""),
    ("DROP TABLE plans", "no table plans"),
    ("ALTER TABLE comments DROP COLUMN answers_call", "no column comments.answers_call"),
    ("ALTER TABLE comments RENAME COLUMN author TO writer", "no column comments.author"),
    ("CREATE UNIQUE INDEX later ON comments (author)", "a rule of comments: ['author']"),
]


@pytest.mark.parametrize(("change", "found"), CHANGES)
def test_what_takes_something_away_is_found(db: Database, change: str, found: str) -> None:
    before = _shape(db)
    with db.write() as conn:
        conn.execute(sa.text(change))
    lost = taken_away(before, _shape(db))
    assert found in lost if found else lost == []
