"""Every state × every event, and the CHECKs that hold whatever the program does."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from jobs.lifecycle import _move
from jobs.states import LEASED, TERMINAL, TRANSITIONS, Event, State, sources, target
from storage import models
from storage.engine import Database
from storage.errors import IllegalTransition
from storage.jobs import job_tx
from storage.models import comments, job_events, jobs, messages, runs, tool_calls
from storage.records import RunRef
from storage.runs import claim_best
from tests import factories

PAIRS = [(state, event) for state in State for event in Event]


def test_the_models_know_the_same_states() -> None:
    assert set(models.STATES) == set(State)
    assert len(models.STATES) == len(State)
    assert set(models.TERMINAL_STATES) == TERMINAL


def _carry_out(db: Database, job_id: str, state: State, event: Event, run: RunRef | None) -> None:
    """The event by its own kind of guarded UPDATE: a run's checkpoint, a claim, or a locked row."""
    if run is not None:
        end = target(state, event) or State.QUEUED
        move = factories.move(end, event, sources=sources(event))
        factories.commit(db, run, move=move)
    elif (state, event) == (State.QUEUED, Event.CLAIM):
        factories.set_columns(db, job_id, priority=1000)
        factories.claim_job(db, job_id)
    else:
        values: dict[str, Any] = {"resume_state": State.QUEUED} if event is Event.PAUSE else {}
        if event is Event.RETRY:
            values["completed_at"] = None
        with job_tx(db, job_id) as job:
            _move(job, event, "tester", values)


def test_every_state_times_every_event(db: Database) -> None:
    moved = refused = 0
    for state in State:
        if state in LEASED:
            run_ids = [factories.new_id("run") for _ in Event]
            ids = [factories.make_job(db, state, run_id=run_id) for run_id in run_ids]
            owners = [RunRef(*pair) for pair in zip(run_ids, ids, strict=True)]
            leased: list[RunRef | None] = [*owners]
        else:
            ids, leased = factories.make_jobs(db, len(Event), state), [None] * len(Event)
        for event, job_id, run in zip(Event, ids, leased, strict=True):
            if _step(db, state, event, job_id, run):
                moved += 1
            else:
                refused += 1
    assert moved == len(TRANSITIONS)
    assert refused == len(PAIRS) - len(TRANSITIONS)


def _step(db: Database, state: State, event: Event, job_id: str, run: RunRef | None) -> bool:
    """Carries the event out and checks all that it did: True where it is legal."""
    before, counts = factories.job_now(db, job_id), factories.table_counts(db, job_id)
    end = target(state, event)
    if end is None:
        with pytest.raises(IllegalTransition) as caught:
            _carry_out(db, job_id, state, event, run)
        assert (caught.value.state, caught.value.event) == (state, event)
        assert factories.job_now(db, job_id) == before, (state, event)
        assert factories.table_counts(db, job_id) == counts, (state, event)
        return False
    _carry_out(db, job_id, state, event, run)
    after = factories.job_now(db, job_id)
    assert after["state"] == end, (state, event)
    assert (after["completed_at"] is not None) == (end in TERMINAL), (state, event)
    last = factories.rows_of(db, job_events, job_id)[-1]
    assert (last["kind"], last["to_state"]) == (event, end)
    assert last["seq"] == after["event_seq"] == before["event_seq"] + 1
    if run is not None:
        assert after["run_id"] is None
        assert factories.rows_of(db, runs, job_id)[0]["ended_at"] is not None
    return True


def test_a_claim_takes_no_job_of_another_state(db: Database) -> None:
    ids = {state: factories.make_job(db, state) for state in State if state is not State.QUEUED}
    before = {state: factories.job_now(db, job_id) for state, job_id in ids.items()}
    for job_id in ids.values():
        assert claim_best(db, factories.claim(), job_id) is None
    assert {state: factories.job_now(db, job_id) for state, job_id in ids.items()} == before


def test_a_run_that_moves_the_job_twice_is_refused(db: Database) -> None:
    run = factories.running_job(db)
    factories.commit(db, run, move=factories.move(State.QUEUED, Event.REQUEUE))
    with pytest.raises(Exception, match="no longer owns"):
        factories.commit(db, run, move=factories.move(State.SUCCEEDED, Event.SUCCEED))
    assert factories.job_now(db, run.job_id)["state"] == State.QUEUED


BROKEN: list[tuple[str, str, dict[str, Any]]] = [
    ("state_known", State.QUEUED, {"state": "waiting"}),
    ("terminal_iff_completed", State.SUCCEEDED, {"completed_at": None}),
    ("terminal_iff_completed", State.QUEUED, {"completed_at": 1.0}),
    ("running_has_run", State.RUNNING, {"run_id": None}),
    ("run_only_while_leased", State.QUEUED, {"run_id": "r"}),
    ("run_only_while_leased", State.FAILED, {"run_id": "r"}),
    ("summary_state_known", State.QUEUED, {"summary_state": "later"}),
    ("inbox_seen_bounded", State.QUEUED, {"inbox_seen": 1}),
    ("children_open_positive", State.QUEUED, {"children_open": -1}),
]


@pytest.mark.parametrize(("check", "state", "values"), BROKEN, ids=[f"{c}-{s}" for c, s, _ in BROKEN])
def test_a_job_that_cannot_be_is_refused_by_the_database(
    db: Database, check: str, state: str, values: dict[str, Any]
) -> None:
    job_id = factories.make_job(db, state)
    with pytest.raises(sa.exc.IntegrityError, match=check):
        factories.set_columns(db, job_id, **values)


def test_a_job_in_every_state_is_accepted(db: Database) -> None:
    for state in State:
        assert factories.job_now(db, factories.make_job(db, state))["state"] == state


@pytest.mark.parametrize(
    ("check", "table", "values"),
    [
        ("kind_known", comments, {"number": 1, "kind": "note", "author": "a", "text": "t", "created_at": 0.0}),
        (
            "tool_answers_call", messages,
            {"seq": 1, "visit": 1, "role": "tool", "kind": "tool", "run_id": "r", "created_at": 0.0},
        ),
        (
            "role_known", messages,
            {"seq": 1, "visit": 1, "role": "human", "kind": "gap", "run_id": "r", "created_at": 0.0},
        ),
        (
            "state_known", tool_calls,
            {"call_id": "c", "message_seq": 1, "position": 0, "name": "n", "arguments": "{}", "state": "lost"},
        ),
        (
            "done_has_result", tool_calls,
            {"call_id": "c", "message_seq": 1, "position": 0, "name": "n", "arguments": "{}", "state": "done"},
        ),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_is_refused_by_the_database(
    db: Database, check: str, table: sa.Table, values: dict[str, Any]
) -> None:
    def insert() -> None:
        with db.write() as conn:
            conn.execute(sa.insert(table).values({"job_id": job_id} | values))

    job_id = factories.make_job(db)
    with pytest.raises(sa.exc.IntegrityError, match=check):
        insert()


def test_one_key_of_an_owner_is_one_job(db: Database) -> None:
    factories.make_job(db, idempotency_key="k")
    factories.make_job(db, idempotency_key="k", owner="someone else")
    factories.make_jobs(db, 2)  # without a key there is nothing to clash
    with pytest.raises(sa.exc.IntegrityError):
        factories.make_job(db, idempotency_key="k")
    with db.read() as conn:
        assert conn.execute(sa.select(sa.func.count()).select_from(jobs)).scalar_one() == 4
