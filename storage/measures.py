"""What worker processes count, added up over all of them: sums that only grow, whichever process lives or dies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from storage.engine import Database
from storage.models import measures
from storage.text import clean_text


@dataclass(frozen=True, slots=True, order=True)
class Series:
    """A name and its labels, as (label, value), in the labels' order."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()


def add_measures(db: Database, grown: Mapping[Series, float]) -> None:
    """Adds to the stored sums, all or nothing, on the connection of heartbeats. Raises StorageError: whether the sums
    were added is then not known where the connection was cut in the commit.
    """
    # In one order for all processes: none waits for a row of another that waits for one of it.
    rows = [
        {"name": series.name, "labels": clean_text(json.dumps(series.labels)), "value": value}
        for series, value in sorted(grown.items())
    ]
    if not rows:
        return
    insert = (sqlite_insert if db.is_sqlite else postgres_insert)(measures)
    added = insert.on_conflict_do_update(
        index_elements=["name", "labels"], set_={"value": measures.c.value + insert.excluded.value}
    )
    with db.lone_write() as conn:
        conn.execute(added, rows)


def read_measures(db: Database) -> dict[Series, float]:
    """Every sum."""
    with db.read() as conn:
        rows = conn.execute(sa.select(measures)).all()
    return {
        Series(
            row.name, tuple((str(label), str(value)) for label, value in json.loads(row.labels))
        ): row.value
        for row in rows
    }
