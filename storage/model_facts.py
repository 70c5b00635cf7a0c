"""What was learned of models: windows that servers named, and what they refused. Shared by all workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from storage.engine import Database, wall_clock
from storage.models import model_facts
from storage.text import clean_json, clean_text

FORGET_SECONDS = 7 * 86_400.0  # servers are upgraded: what they refused last week is tried again


def all_facts(db: Database) -> dict[str, dict[str, Any]]:
    """Endpoint and model → what is known. What was last learned a week ago is left out."""
    statement = sa.select(model_facts.c.endpoint, model_facts.c.facts).where(
        model_facts.c.updated_at > wall_clock() - FORGET_SECONDS
    )
    with db.read() as conn:
        return {row.endpoint: row.facts for row in conn.execute(statement)}


def learn(db: Database, endpoint: str, news: Mapping[str, Any]) -> dict[str, Any]:
    """Merges `news` into what is known, `refused` member by member, and returns the whole. Old facts are forgotten."""
    endpoint = clean_text(endpoint)
    with db.write() as conn:
        insert = (sqlite_insert if db.is_sqlite else postgres_insert)(model_facts)
        fresh = {"endpoint": endpoint, "facts": {}, "updated_at": wall_clock()}
        conn.execute(insert.values(fresh).on_conflict_do_nothing())
        fresh_enough = (model_facts.c.updated_at > wall_clock() - FORGET_SECONDS).label("fresh")
        known = sa.select(model_facts.c.facts, fresh_enough).where(model_facts.c.endpoint == endpoint)
        row = conn.execute(known if db.is_sqlite else known.with_for_update()).one()
        facts: dict[str, Any] = dict(row.facts) if row.fresh else {}
        merged = {**facts, **news}
        if "refused" in facts or "refused" in news:
            merged["refused"] = {**facts.get("refused", {}), **news.get("refused", {})}
        cleaned: dict[str, Any] = clean_json(merged)
        conn.execute(
            sa.update(model_facts)
            .where(model_facts.c.endpoint == endpoint)
            .values(facts=cleaned, updated_at=wall_clock())
        )
    return cleaned
