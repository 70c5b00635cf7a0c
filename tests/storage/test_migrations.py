"""The schema: up, down and up again; equal to the models; refused when it is not ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext

from storage import migrate
from storage.engine import Database
from storage.errors import SchemaMismatch, StorageError
from storage.models import comments, job_inputs, jobs, metadata, schema_floor
from tests import factories
from tests.storage.children import run_children


@pytest.fixture
def empty(database_url: str) -> Iterator[Database]:
    """A database without tables."""
    database = Database(database_url)
    yield database
    database.close()


def _tables(db: Database) -> set[str]:
    with db.read() as conn:
        return set(sa.inspect(conn).get_table_names())


OURS = set(metadata.tables) | {"alembic_version"}


def test_up_down_and_up_again(empty: Database) -> None:
    assert migrate.current(empty) is None
    migrate.upgrade(empty)
    assert _tables(empty) == OURS
    assert migrate.current(empty) == migrate.head()
    factories.make_job(empty)
    migrate.downgrade(empty, "base")
    assert _tables(empty) == {"alembic_version"}
    assert migrate.current(empty) is None
    migrate.upgrade(empty)
    migrate.check(empty)
    factories.make_job(empty)
    migrate.upgrade(empty)  # nothing to do
    with empty.read() as conn:
        assert conn.execute(sa.select(sa.func.count()).select_from(jobs)).scalar_one() == 1


def _differences(db: Database) -> list[Any]:
    with db.read() as conn:
        options = {"compare_type": True, "compare_server_default": True}
        return list(compare_metadata(MigrationContext.configure(conn, opts=options), metadata))


def _schema(db: Database) -> dict[str, Any]:
    """What alembic does not compare: keys, checks, foreign keys with their rules, indexes as they were written."""
    with db.read() as conn:
        inspector = sa.inspect(conn)
        if db.is_sqlite:
            text = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
        else:
            text = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'"
        rows = conn.execute(sa.text(text))
        indexes = {name: made for name, made in rows if not name.startswith("alembic_")}
        found: dict[str, Any] = {"indexes": indexes}
        for table in sorted(metadata.tables):
            found[table] = {
                "primary key": inspector.get_pk_constraint(table),
                "checks": sorted(
                    (check["name"], check["sqltext"]) for check in inspector.get_check_constraints(table)
                ),
                "unique": sorted(
                    (str(unique["name"]), unique["column_names"])
                    for unique in inspector.get_unique_constraints(table)
                ),
                "foreign keys": sorted(
                    (str(key["name"]), key["constrained_columns"], key["referred_table"], str(key["options"]))
                    for key in inspector.get_foreign_keys(table)
                ),
                "columns": {
                    column["name"]: (str(column["type"]), column["nullable"], column["default"])
                    for column in inspector.get_columns(table)
                },
            }
        return found


def test_the_migrated_schema_is_the_models(empty: Database) -> None:
    with empty.write() as conn:
        metadata.create_all(conn)
    from_models = _schema(empty)
    with empty.write() as conn:
        metadata.drop_all(conn)
    migrate.upgrade(empty)
    assert _differences(empty) == []
    assert _schema(empty) == from_models
    assert "ix_jobs_claim" in from_models["indexes"]
    assert len(from_models["jobs"]["checks"]) == 7


def test_the_comparison_sees_a_difference(empty: Database) -> None:
    migrate.upgrade(empty)
    before = _schema(empty)
    with empty.write() as conn:
        conn.execute(sa.text("DROP INDEX ix_jobs_claim"))
        conn.execute(sa.text("ALTER TABLE jobs ADD COLUMN later TEXT DEFAULT 'x'"))
    assert len(_differences(empty)) == 2
    assert _schema(empty) != before


def test_an_empty_database_is_refused_with_the_command_that_helps(empty: Database) -> None:
    with pytest.raises(SchemaMismatch, match="no tables") as caught:
        migrate.check(empty)
    assert caught.value.hint == "run: sostenuto db upgrade"


def _set_revision(db: Database, revision: str) -> None:
    with db.write() as conn:
        conn.execute(sa.text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})


def test_a_newer_programs_data_is_refused_and_left_alone(db: Database) -> None:
    job_id = factories.make_job(db)
    _set_revision(db, "9999")
    migrate.check(db)  # it only added
    with db.write() as conn:
        conn.execute(sa.update(schema_floor).values(oldest_program="9998"))  # it took something away
    for refuse in (migrate.check, migrate.upgrade, lambda found: migrate.downgrade(found, "base")):
        with pytest.raises(SchemaMismatch, match="newer version") as caught:
            refuse(db)
        assert "9999" in str(caught.value)
        assert "upgrade this installation" in str(caught.value.hint)
    assert migrate.current(db) == "9999"
    assert factories.job_now(db, job_id)["id"] == job_id


def test_a_failed_migration_leaves_nothing(empty: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last table cannot be made: the ones before it, and the revision, must not be there either."""
    original = Operations.create_table

    def fail_late(self: Operations, name: str, *parts: Any, **options: Any) -> Any:
        if name == "tool_calls":
            raise ZeroDivisionError
        return original(self, name, *parts, **options)

    with monkeypatch.context() as patch:
        patch.setattr("alembic.op.create_table", lambda *a, **k: fail_late(_operations(), *a, **k))
        with pytest.raises(ZeroDivisionError):
            migrate.upgrade(empty)
    assert _tables(empty) == set()
    migrate.upgrade(empty)
    migrate.check(empty)


def _operations() -> Operations:
    from alembic import op

    return Operations(op.get_context())


def test_altering_a_table_keeps_the_rows_that_refer_to_it(db: Database) -> None:
    """SQLite alters by copying and dropping: with foreign keys on, the drop deleted every transcript."""
    job_id = factories.make_job(db)
    with db.write() as conn:
        row = {
            "job_id": job_id,
            "number": 1,
            "kind": "comment",
            "author": "a",
            "text": "t",
            "created_at": 0.0,
        }
        conn.execute(sa.insert(comments), row)
    with migrate._migrating(db) as config:
        operations = Operations(MigrationContext.configure(config.attributes["connection"]))
        with operations.batch_alter_table("jobs", recreate="always" if db.is_sqlite else "never") as batch:
            batch.add_column(sa.Column("later", sa.Text))
    assert len(factories.rows_of(db, comments, job_id)) == 1
    assert len(factories.rows_of(db, job_inputs, job_id)) == 1
    with db.write() as conn:  # foreign keys are on again
        conn.execute(sa.delete(jobs))
    assert factories.rows_of(db, comments, job_id) == []


def test_a_migration_that_would_leave_orphans_is_rolled_back(db: Database) -> None:
    job_id = factories.make_job(db)

    def lose_rows() -> None:
        with migrate._migrating(db) as config:
            config.attributes["connection"].execute(sa.text("UPDATE job_inputs SET job_id = 'nobody'"))

    with pytest.raises((StorageError, sa.exc.IntegrityError)):
        lose_rows()
    assert factories.job_now(db, job_id)["id"] == job_id


def test_four_processes_upgrade_at_once(empty: Database) -> None:
    body = """
from storage import migrate
migrate.upgrade(db)
migrate.check(db)
print(json.dumps(migrate.current(db)))
"""
    url = empty.url.render_as_string(hide_password=False)
    assert run_children(body, [{"url": url}] * 4) == [migrate.head()] * 4
    assert _tables(empty) == OURS
    with empty.read() as conn:
        assert conn.execute(sa.text("SELECT count(*) FROM alembic_version")).scalar_one() == 1
