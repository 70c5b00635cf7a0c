"""A run's writes: fenced, whole or not at all, cheap at any length, and clean."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from jobs.states import Event, State
from storage import transcript
from storage.comments import answer_to
from storage.engine import Database
from storage.errors import IllegalTransition, InboxChanged, JobNotFound, LeaseLost, RequestPending
from storage.jobs import get_inputs, get_job, insert_job, job_ids_like, job_tx
from storage.listing import list_jobs
from storage.models import comments, job_events, jobs, messages, runs, tool_calls
from storage.records import NewEvent, NewMessage, RunRef
from tests import factories
from tests.factories import commit, move, returned, said
from tests.storage.plans import Statements, plans, recorded, scans

DIRTY = "a\0b\ud83d"
CLEAN = "a␀b\ufffd"


def _everything(db: Database, job_id: str) -> Any:
    return factories.job_now(db, job_id), factories.table_counts(db, job_id)


# --- the fence ---


def test_a_run_that_does_not_own_the_job_writes_nothing(db: Database) -> None:
    run = factories.running_job(db)
    before = _everything(db, run.job_id)
    full = {"events": [NewEvent("note", "x")], "steps": 1, "values": {"result": "zombie"}}
    for zombie in (RunRef("another", run.job_id), RunRef(run.run_id, "no such job")):
        with pytest.raises(LeaseLost) as caught:
            commit(db, zombie, said("late"), **full)
        assert (caught.value.job_id, caught.value.run_id) == (zombie.job_id, zombie.run_id)
        with pytest.raises(LeaseLost):
            commit(db, zombie, move=move(State.SUCCEEDED, Event.SUCCEED))
    assert _everything(db, run.job_id) == before


def test_a_run_writes_nothing_after_its_own_end(db: Database) -> None:
    run = factories.running_job(db)
    commit(db, run, said("bye"), move=move(State.SUCCEEDED, Event.SUCCEED))
    before = _everything(db, run.job_id)
    with pytest.raises(LeaseLost):
        commit(db, run, said("still here"))
    assert _everything(db, run.job_id) == before
    (row,) = factories.rows_of(db, runs, run.job_id)
    assert (row["ended_at"] is not None, row["outcome"]) == (True, "ended")


def test_a_move_from_another_state_is_refused(db: Database) -> None:
    run_id = factories.new_id("run")
    run = RunRef(run_id, factories.make_job(db, State.COMPRESSING, run_id=run_id))
    before = _everything(db, run.job_id)
    with pytest.raises(IllegalTransition, match="compressing: ask"):
        commit(db, run, said("?"), move=move(State.WAITING_HUMAN, Event.ASK))
    assert _everything(db, run.job_id) == before


def test_a_comment_that_was_not_shown_refuses_the_end(db: Database) -> None:
    run = factories.running_job(db, inbox_total=2, inbox_seen=1)
    before = _everything(db, run.job_id)
    with pytest.raises(InboxChanged) as caught:
        commit(db, run, said("done"), move=move(State.SUCCEEDED, Event.SUCCEED), expect_inbox=1)
    assert caught.value.unread == 1
    assert _everything(db, run.job_id) == before
    commit(db, run, inbox_seen=2)
    done = ("result", "It is done.")
    commit(db, run, move=move(State.SUCCEEDED, Event.SUCCEED), expect_inbox=2, remark=done)
    row = factories.job_now(db, run.job_id)
    assert (row["inbox_total"], row["inbox_seen"]) == (3, 3)  # its own remark is read already
    (remark,) = factories.rows_of(db, comments, run.job_id)
    assert (remark["number"], remark["kind"], remark["text"]) == (3, "result", "It is done.")


@pytest.mark.parametrize("asked", ["pause_requested", "cancel_requested"])
def test_a_request_of_the_last_moment_is_not_lost_with_the_move(db: Database, asked: str) -> None:
    """A slice that ended just after a person's cancel put the job back into the queue, and the cancel was forgotten."""
    run = factories.running_job(db, **{asked: True})
    before = _everything(db, run.job_id)
    back = move(State.QUEUED, Event.REQUEUE, unless=("pause_requested", "cancel_requested"))
    with pytest.raises(RequestPending) as caught:
        commit(db, run, said("on"), move=back)
    assert caught.value.cancel is (asked == "cancel_requested")
    assert _everything(db, run.job_id) == before
    factories.set_columns(db, run.job_id, **{asked: False})
    commit(db, run, said("on"), move=back)
    assert factories.job_now(db, run.job_id)["state"] == State.QUEUED


def test_requests_are_told_by_every_checkpoint(db: Database) -> None:
    run = factories.running_job(db)
    told = commit(db, run, said("a"))
    assert (told.pause_requested, told.cancel_requested) == (False, False)
    factories.set_columns(db, run.job_id, pause_requested=True, cancel_requested=True, inbox_total=4)
    told = commit(db, run, said("b"))
    assert (told.pause_requested, told.cancel_requested, told.inbox_total) == (True, True, 4)


# --- calls ---


def test_one_result_for_one_call(db: Database) -> None:
    run = factories.running_job(db)
    commit(db, run, said(None, ("c1", "Bash", "{}"), ("c2", "Read", "{}")))
    commit(db, run, returned("c1", "first"))
    before = _everything(db, run.job_id)
    with pytest.raises(RuntimeError, match=r"c1 of job .* already has its result"):
        commit(db, run, returned("c1", "second"))
    with pytest.raises(RuntimeError):
        commit(db, run, returned("c2", "once"), returned("c2", "twice"))
    with pytest.raises(RuntimeError):
        commit(db, run, returned("never called", "x"))
    assert _everything(db, run.job_id) == before
    first, second = factories.rows_of(db, tool_calls, run.job_id)
    assert (first["state"], first["result_seq"], first["position"]) == ("done", 2, 0)
    assert (second["state"], second["result_seq"], second["position"]) == ("open", None, 1)


def test_of_two_results_at_once_one_is_kept(db: Database) -> None:
    run = factories.running_job(db)
    calls = [(f"c{number}", "Bash", "{}") for number in range(20)]
    commit(db, run, said(None, *calls))
    start = threading.Barrier(2)

    def answer(text: str) -> int:
        kept = 0
        for call_id, _, _ in calls:
            start.wait(30)
            try:
                commit(db, run, returned(call_id, text))
                kept += 1
            except RuntimeError:
                pass
        return kept

    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(answer, ["cancelled", "completed"])) == 20
    row = factories.job_now(db, run.job_id)
    assert (row["total_messages"], row["total_tool_calls"]) == (21, 20)
    _check_statistics(db, run.job_id)


def test_a_parked_call_waits_and_takes_its_answer(db: Database) -> None:
    run = factories.running_job(db)
    commit(db, run, said(None, ("c1", "transition", "{}")))
    commit(db, run, parks=("c1",), move=move(State.WAITING_HUMAN, Event.ASK))
    assert factories.rows_of(db, tool_calls, run.job_id)[0]["state"] == "parked"
    assert answer_to(db, run.job_id, "c1") is None
    with job_tx(db, run.job_id) as job:
        comment = job.add_comment("ann", "blue", answers_call="c1")
        job.update({"state": State.QUEUED, "inbox_total": comment.number})
    assert answer_to(db, run.job_id, "c1") == comment
    again = factories.claim_job(db, run.job_id)
    commit(db, again, returned("c1", "ann answers: blue", name="transition"))
    assert factories.rows_of(db, tool_calls, run.job_id)[0]["state"] == "done"


# --- numbers ---


def _check_statistics(db: Database, job_id: str) -> None:
    """The counters on the job's row equal a recount, and no number is missing."""
    row = factories.job_now(db, job_id)
    sent = factories.rows_of(db, messages, job_id)
    assert [message["seq"] for message in sent] == list(range(1, row["total_messages"] + 1))
    assert [event["seq"] for event in factories.rows_of(db, job_events, job_id)] == list(
        range(1, row["event_seq"] + 1)
    )
    done = [call for call in factories.rows_of(db, tool_calls, job_id) if call["state"] == "done"]
    assert row["total_tool_calls"] == len(done) == sum(m["role"] == "tool" for m in sent)
    assert {call["result_seq"] for call in done} == {m["seq"] for m in sent if m["role"] == "tool"}
    assert row["inbox_total"] == len(factories.rows_of(db, comments, job_id))


def test_numbers_have_no_gap_and_statistics_are_true_under_concurrency(db: Database) -> None:
    """Six threads of the run write, two comment, some writes fail: every number is given once."""
    run = factories.running_job(db)
    start = threading.Barrier(8)

    def write(number: int) -> None:
        start.wait(30)
        for round_ in range(8):
            call = f"c{number}-{round_}"
            commit(db, run, said("x", (call, "Bash", "{}")), steps=1, prompt_tokens=10, cost=0.5)
            with pytest.raises(RuntimeError):
                commit(db, run, returned("nothing", "rolled back"), events=[NewEvent("never", "x")], steps=9)
            commit(db, run, returned(call, "y"), events=[NewEvent("a", "x"), NewEvent("b", "x")])

    def remark(_: int) -> None:
        start.wait(30)
        for _ in range(8):
            with job_tx(db, run.job_id) as job:
                comment = job.add_comment("ann", "hello")
                job.update({"inbox_total": comment.number}, NewEvent("comment", "ann"))

    with ThreadPoolExecutor(8) as pool:
        working = [pool.submit(write, number) for number in range(6)]
        working += [pool.submit(remark, number) for number in range(2)]
        for each in working:
            each.result(120)
    row = factories.job_now(db, run.job_id)
    assert (row["total_messages"], row["total_tool_calls"], row["inbox_total"]) == (96, 48, 16)
    assert (row["steps"], row["prompt_tokens"], row["cost"]) == (48, 480, 24.0)
    assert row["event_seq"] == 1 + 96 + 16
    _check_statistics(db, run.job_id)


def test_a_visit_begins_with_its_system_message(db: Database) -> None:
    run = factories.running_job(db)
    commit(db, run, said("before"))
    system, head = NewMessage("system", "system", "You are."), NewMessage("user", "head", "Do.")
    told = commit(db, run, system, head, begins_visit=True, values={"visit": 1})
    row = factories.job_now(db, run.job_id)
    assert row["visit_seq"] == told.messages[0].seq == 2
    assert [message.visit for message in told.messages] == [1, 1]
    assert transcript.load_view(db, run.job_id, 2, 0, 0) == list(told.messages)


def test_what_is_returned_is_what_is_stored(db: Database) -> None:
    run = factories.running_job(db)
    call = {"id": "c1", "name": "Bash", "arguments": '{"a": 1}', "raw_id": "x|y"}
    reply = NewMessage("assistant", "assistant", None, tool_calls=[call], extra={"n": [1, None]}, tokens=3)
    told = commit(db, run, reply, returned("c1", "日本語", is_error=True))
    assert transcript.list_messages(db, run.job_id) == list(told.messages)
    assert transcript.list_messages(db, run.job_id, after=1, limit=1) == [told.messages[1]]


# --- the same cost at any length ---


def _lengthen(db: Database, run: RunRef, count: int) -> None:
    """Gives a job's transcript `count` messages more, every second one a call's result."""
    first: int = factories.job_now(db, run.job_id)["total_messages"] + 1
    rows = [
        {
            "job_id": run.job_id, "seq": seq, "visit": 1, "role": "tool" if seq % 2 else "assistant", "kind": "tool",
            "content": "text " * 20, "tool_call_id": f"old-{seq}" if seq % 2 else None, "run_id": run.run_id,
            "created_at": 1.0,
        }
        for seq in range(first, first + count)
    ]  # fmt: skip
    calls = [
        {
            "job_id": run.job_id, "call_id": f"old-{seq}", "message_seq": seq - 1, "position": 0, "name": "Bash",
            "arguments": "{}", "state": "done", "result_seq": seq,
        }
        for seq in range(first, first + count)
        if seq % 2
    ]  # fmt: skip
    with db.write() as conn:
        conn.execute(sa.insert(messages), rows)
        conn.execute(sa.insert(tool_calls), calls)
        conn.execute(sa.update(jobs).where(jobs.c.id == run.job_id).values(total_messages=first + count - 1))


def test_a_step_costs_the_same_at_100_and_at_10_000_messages(db: Database) -> None:
    """The same statements, touching the same rows, each found by its key: counted, not timed."""
    run = factories.running_job(db)
    factories.clone_job(db, factories.make_job(db), 2000)  # other jobs, so that a plan has something to avoid

    def step(number: int) -> Statements:
        with recorded(db) as sent:
            call = f"new-{number}"
            commit(db, run, said("x", (call, "Bash", "{}")), steps=1, events=[NewEvent("note", "x")])
            commit(db, run, returned(call, "y"), parks=("none",))
        return sent

    _lengthen(db, run, 100)
    short = step(1)
    _lengthen(db, run, 9_900)
    long = step(2)
    assert (short.texts, short.rows) == (long.texts, long.rows)
    assert len(long.texts) == 8
    found = plans(db, long)
    assert scans(found) == [], found
    assert factories.job_now(db, run.job_id)["total_messages"] >= 10_000


def test_a_context_is_read_without_the_transcript_before_it(db: Database) -> None:
    """The rows of the present movement only: what an earlier one left is not even looked at."""
    run = factories.running_job(db)
    factories.make_jobs(db, 50)
    _lengthen(db, run, 10_000)
    system, head = NewMessage("system", "system", "You are."), NewMessage("user", "head", "Do.")
    told = commit(db, run, system, head, said("hm"), begins_visit=True, values={"visit": 2})
    with recorded(db) as sent:
        view = transcript.load_view(db, run.job_id, told.messages[0].seq, 0, 5)
    assert [message.seq for message in view] == [5, *(message.seq for message in told.messages)]
    found = plans(db, sent)
    assert "seq>" in found.replace(" ", ""), (
        found
    )  # the key is entered at a number, not at the job's first message


# --- text ---


def test_text_is_cleaned_wherever_it_enters(db: Database) -> None:
    """Postgres refuses NUL, both drivers refuse a lone surrogate: one in a model's summary ended its job."""
    row = factories.submitted_row(
        title=DIRTY, user=DIRTY, repository=DIRTY, task_identifier=DIRTY, idempotency_key=DIRTY, owner=DIRTY,
        metadata={DIRTY: [DIRTY, float("inf")]},
    )  # fmt: skip
    stored, created = insert_job(
        db, row, DIRTY, {DIRTY: DIRTY}, NewEvent("submit", DIRTY, data={DIRTY: DIRTY})
    )
    assert created
    assert get_inputs(db, stored) == (CLEAN, {CLEAN: CLEAN})
    run = factories.claim_job(db, stored)
    call = {"id": DIRTY, "name": DIRTY, "arguments": DIRTY, "raw_id": DIRTY}
    commit(
        db, run,
        NewMessage("assistant", "assistant", DIRTY, tool_calls=[call], extra={DIRTY: DIRTY}),
        events=[NewEvent("note", DIRTY, data={DIRTY: DIRTY})],
    )  # fmt: skip
    commit(db, run, parks=(DIRTY,))
    commit(db, run, NewMessage("tool", "tool", DIRTY, tool_call_id=DIRTY, tool_name=DIRTY))
    with job_tx(db, stored, DIRTY) as job:
        comment = job.add_comment(DIRTY, DIRTY)
        values = {"inbox_total": comment.number, "reason_data": {DIRTY: DIRTY}}
        job.update(values, NewEvent("comment", DIRTY, data={DIRTY: DIRTY}))
    ended = move(State.FAILED, Event.FAIL, reason_data={DIRTY: DIRTY})
    values = {"result": DIRTY, "error_message": DIRTY, "pending_question": {DIRTY: DIRTY}}
    commit(db, run, move=ended, values=values, remark=("result", DIRTY), expect_inbox=1)
    found = repr(
        [factories.job_now(db, stored)]
        + [factories.rows_of(db, table, stored) for table in (messages, tool_calls, comments, job_events)]
    )
    assert found.count(CLEAN) > 30
    assert "\\x00" not in found
    assert "\\ud83d" not in found
    assert factories.job_now(db, stored)["metadata"] == {CLEAN: [CLEAN, None]}
    again = insert_job(db, row | {"id": factories.new_id()}, DIRTY, {}, NewEvent("submit", "x"))
    assert again == (stored, None)  # the same key, found in the form in which it was stored


@pytest.mark.parametrize("strange", [DIRTY, "\0", "\udcff", "%", "'"])
def test_an_id_that_cannot_be_is_not_found(db: Database, strange: str) -> None:
    """`show $'\\xff'`, or %00 in a URL: an error of the driver is no answer."""
    factories.make_job(db)
    for look in (
        lambda: get_job(db, strange),
        lambda: get_job(db, strange, strange),
        lambda: _locked(db, strange),
    ):
        with pytest.raises(JobNotFound):
            look()
    assert job_ids_like(db, strange, None) == []
    assert job_ids_like(db, strange, strange) == []
    list_jobs(db, strange, None, 10, strange)


def _locked(db: Database, job_id: str) -> None:
    with job_tx(db, job_id):
        pass


def test_null_in_sql_is_not_null_in_json(db: Database) -> None:
    """A column without a value is SQL's NULL, so that IS NULL finds it; null inside a value stays."""
    job_id = factories.make_job(db, metadata=None, reason_data=None)
    other = factories.make_job(db, metadata={"a": None})
    with db.read() as conn:
        empty = sa.select(jobs.c.id).where(jobs.c.metadata.is_(None))
        assert conn.execute(empty).scalars().all() == [job_id]
    assert factories.job_now(db, other)["metadata"] == {"a": None}
    run = factories.running_job(db)
    commit(db, run, said("x"), events=[NewEvent("note", "x")])
    with job_tx(db, job_id) as job:
        job.update({"pending_question": None, "metadata": None}, NewEvent("note", "x"))
    with db.read() as conn:
        for table, column in ((messages, "tool_calls"), (messages, "extra"), (job_events, "data")):
            text = f"SELECT count(*) FROM {table.name} WHERE {column} IS NOT NULL"
            assert conn.execute(sa.text(text)).scalar_one() == 0, column


# --- looking up ---


def test_ids_are_found_by_their_begin_and_by_their_end(db: Database) -> None:
    ids = [f"01a229fd-148f-7297-91a0-8805c668{tail}" for tail in ("0a1b", "0a2c", "ff00")]
    for job_id in ids:
        factories.make_job(db, id=job_id)
    factories.make_job(db, id="02b00000-0000-7000-8000-000000000000", owner="other")
    assert job_ids_like(db, "01a2", None) == ids
    assert job_ids_like(db, "01a229fd-", "local") == ids
    assert job_ids_like(db, ids[0], None) == [ids[0]]
    assert job_ids_like(db, "0a2c", None) == [ids[1]]
    assert job_ids_like(db, "02b", "local") == []
    assert job_ids_like(db, "_", None) == []
    assert job_ids_like(db, "01a2", None, limit=2) == ids[:2]


def test_pages_of_the_list(db: Database) -> None:
    ids = [factories.make_job(db, id=f"0{number}") for number in range(5)]
    factories.make_job(db, id="09", owner="other")
    factories.set_columns(db, ids[3], state=State.PAUSED)
    mine = list_jobs(db, "local", None, 2, None)
    assert [row["id"] for row in mine] == ["04", "03"]
    assert [row["id"] for row in list_jobs(db, "local", None, 9, "03")] == ["02", "01", "00"]
    assert [row["id"] for row in list_jobs(db, None, None, 2, None)] == ["09", "04"]
    assert [row["id"] for row in list_jobs(db, "local", [State.PAUSED], 9, None)] == ["03"]
    with pytest.raises(JobNotFound):
        get_job(db, "09", "local")
