"""Alembic's environment: always online, on the connection that `storage.migrate` hands over."""

from __future__ import annotations

from alembic import context

from storage.models import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=connection.dialect.name == "sqlite",  # SQLite alters a table by copying it
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
