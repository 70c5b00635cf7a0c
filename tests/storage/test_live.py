"""What is told of a reply while it is written: shown while it is true, and never as the truth."""

from __future__ import annotations

from storage import live
from storage.comments import list_comments
from storage.engine import Database
from storage.jobs import job_tx
from storage.models import live_replies, watches
from storage.observing import progress_of
from storage.runs import read_wishes
from tests.factories import (
    claim_job,
    commit,
    expire_lease,
    job_now,
    move,
    returned,
    rows_of,
    running_job,
    said,
    set_columns,
)


def _tell(db: Database, text: str, *, seq: int = 1) -> str:
    run = running_job(db)
    assert live.tell_live_if_run_owns(db, run, seq, {"text": text})
    return run.job_id


def test_it_is_there_until_its_message_is_committed(db: Database) -> None:
    run = running_job(db)
    assert progress_of(db, [run.job_id])[run.job_id].live_at == 0
    for text in ("Hel", "Hello"):
        assert live.tell_live_if_run_owns(db, run, 1, {"text": text})
        found = live.live_reply(db, run.job_id)
        assert found is not None
        assert (found.seq, found.data) == (1, {"text": text})
        assert progress_of(db, [run.job_id])[run.job_id].live_at == found.told_at
    assert len(rows_of(db, live_replies, run.job_id)) == 1
    commit(db, run, said("Hello."), ends_live=True)
    assert rows_of(db, live_replies, run.job_id) == []
    assert not live.tell_live_if_run_owns(db, run, 1, {"text": "late"})
    assert rows_of(db, live_replies, run.job_id) == []


def test_a_commit_ends_it_even_where_nobody_deletes_it(db: Database) -> None:
    run = running_job(db)
    live.tell_live_if_run_owns(db, run, 1, {"text": "Hel"})
    commit(db, run, said("Hello."))
    assert rows_of(db, live_replies, run.job_id) != []
    assert live.live_reply(db, run.job_id) is None
    assert progress_of(db, [run.job_id])[run.job_id].live_at == 0


def test_a_dead_run_leaves_nothing_that_is_shown(db: Database) -> None:
    """From the end of its lease on; then its job's next run tells of its own reply, of the same number."""
    run = running_job(db)
    live.tell_live_if_run_owns(db, run, 1, {"text": "of the dead"})
    expire_lease(db, run)
    assert live.live_reply(db, run.job_id) is None
    set_columns(db, run.job_id, state="queued", run_id=None)
    assert not live.tell_live_if_run_owns(db, run, 1, {"text": "of a zombie"})
    second = claim_job(db, run.job_id)
    assert live.live_reply(db, run.job_id) is None
    assert live.tell_live_if_run_owns(db, second, 1, {"text": "of the living"})
    found = live.live_reply(db, run.job_id)
    assert found is not None
    assert found.data == {"text": "of the living"}
    assert len(rows_of(db, live_replies, run.job_id)) == 1


def test_text_is_cleaned_as_everywhere(db: Database) -> None:
    job_id = _tell(db, "a\0b\ud83d")
    found = live.live_reply(db, job_id)
    assert found is not None
    assert "\0" not in found.data["text"]


def test_what_is_left_behind_is_cleared_away(db: Database) -> None:
    kept, left = running_job(db), running_job(db)
    for run in (kept, left):
        live.tell_live_if_run_owns(db, run, 1, {"text": "x"})
    commit(db, left, move=move("queued", "requeue", reason="slice_ended"))
    live.watch_jobs(db, [kept.job_id], 60)
    live.watch_jobs(db, [left.job_id, "no-such-job"], -1)
    live.clear_live(db)
    assert [bool(rows_of(db, live_replies, run.job_id)) for run in (kept, left)] == [True, False]
    assert [bool(rows_of(db, watches, run.job_id)) for run in (kept, left)] == [True, False]


def test_a_run_hears_that_its_job_is_watched(db: Database) -> None:
    run, other = running_job(db), running_job(db)
    ids = [run.run_id, other.run_id]
    assert not any(wishes.watched for wishes in read_wishes(db, ids).values())
    live.watch_jobs(db, [run.job_id], 60)
    assert [read_wishes(db, ids)[run_id].watched for run_id in ids] == [True, False]
    live.watch_jobs(db, [run.job_id], -1)
    assert not read_wishes(db, ids)[run.run_id].watched


def test_a_comment_knows_the_step_that_had_it_first(db: Database) -> None:
    run = running_job(db)
    for text in ("one", "two"):
        with job_tx(db, run.job_id) as job:
            job.update({"inbox_total": job.add_comment("ann", text).number})
    commit(db, run, said("a", ("c1", "Bash", "{}")), steps=1)
    commit(db, run, returned("c1", "ok"))
    commit(db, run, said("gap"), inbox_seen=1)
    first, second = list_comments(db, run.job_id)
    assert (first.seen_seq, first.seen_step) == (3, 2)
    assert (second.seen_seq, second.seen_step) == (None, None)
    commit(db, run, said("b"), steps=1)
    commit(db, run, said("gap"), inbox_seen=2)
    first, second = list_comments(db, run.job_id)
    assert (first.seen_step, second.seen_seq, second.seen_step) == (2, 5, 3)
    assert job_now(db, run.job_id)["inbox_seen"] == 2
