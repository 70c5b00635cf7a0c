"""Two versions side by side: a worker of the old one on a database that the new one has migrated."""

from __future__ import annotations

import sqlalchemy as sa

from jobs.states import State
from storage.models import schema_floor
from tests.resilience.bench import COMPLETE, Bench, bash, story

# What the next version's migration may do: everything that only adds.
EXPAND = [
    "ALTER TABLE jobs ADD COLUMN later TEXT",
    "ALTER TABLE runs ADD COLUMN later INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE messages ADD COLUMN later TEXT NOT NULL DEFAULT 'x'",
    "ALTER TABLE workers ADD COLUMN later TEXT",
    "CREATE TABLE later (id INTEGER PRIMARY KEY, job_id TEXT REFERENCES jobs (id) ON DELETE CASCADE)",
    "CREATE INDEX ix_later ON jobs (later)",
    "UPDATE alembic_version SET version_num = '9999'",
]


def test_a_worker_goes_on_while_the_database_is_migrated_and_another_may_start(bench: Bench) -> None:
    bench.endpoint.mind = story(bash("echo done >> output/effects.txt"), COMPLETE)
    gate = bench.endpoint.hold()
    running = bench.start()
    under_way = bench.submit()
    gate.wait_held()
    db = bench.installation.db
    with db.write() as conn:
        for statement in EXPAND:
            conn.execute(sa.text(statement))
    gate.release()
    assert bench.wait_ended(under_way).state == State.SUCCEEDED
    running.term()
    assert running.wait() == 0

    bench.start()  # of the old version too: as after a crash in the middle of a deploy
    after = bench.cli("submit", "--piece", "plain", "Do it.").strip()
    assert bench.wait_ended(after).state == State.SUCCEEDED
    assert bench.effects(after) == 1
    assert "made by a newer program" in bench.cli("db", "current")

    with db.write() as conn:  # the contract: nobody who does not know the new schema may write
        conn.execute(sa.update(schema_floor).values(oldest_program="9999"))
    refused = bench.commands(env=bench.env())
    assert refused.wait() == 5
    assert "written by a newer version of Sostenuto (revision 9999)" in refused.log()
