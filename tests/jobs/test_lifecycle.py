"""What people do to a job, in every state: pause, resume, cancel, retry."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from jobs import lifecycle
from jobs.comments import add_comment
from jobs.errors import IllegalTransition, JobNotFound, UsageError
from jobs.installation import Installation
from jobs.lifecycle import Budget
from jobs.reasons import Reason
from jobs.states import LEASED, RESUME_EVENTS, TERMINAL, State
from jobs.views import JobView
from storage.engine import Database, wall_clock
from storage.errors import LeaseLost
from storage.models import job_events, runs
from storage.records import RunRef
from storage.runs import take_unwoken_jobs
from tests import factories

OWNER = factories.OWNER


def _pause(installation: Installation, job_id: str, owner: str | None = OWNER) -> JobView:
    return lifecycle.pause(installation, job_id, owner, "ann")


def _resume(installation: Installation, job_id: str, owner: str | None = OWNER, **limits: Any) -> JobView:
    return lifecycle.resume(installation, job_id, owner, "ann", Budget(**limits))


def _cancel(installation: Installation, job_id: str, owner: str | None = OWNER) -> JobView:
    return lifecycle.cancel(installation, job_id, owner, "ann")


def _retry(installation: Installation, job_id: str, owner: str | None = OWNER) -> JobView:
    return lifecycle.retry(installation, job_id, owner, "ann", None)


ACTIONS = [_pause, _resume, _cancel, _retry]


def _last_event(db: Database, job_id: str) -> tuple[str, str, str | None, str | None]:
    row = factories.rows_of(db, job_events, job_id)[-1]
    return row["kind"], row["actor"], row["from_state"], row["to_state"]


def _refused(db: Database, job_id: str, act: Callable[[], object]) -> IllegalTransition:
    before, counts = factories.job_now(db, job_id), factories.table_counts(db, job_id)
    with pytest.raises(IllegalTransition) as caught:
        act()
    assert factories.job_now(db, job_id) == before
    assert factories.table_counts(db, job_id) == counts
    return caught.value


def _changed(db: Database, job_id: str, act: Callable[[], object]) -> set[str]:
    """The columns that the action changed, the row's own clock aside."""
    before = factories.job_now(db, job_id)
    act()
    after = factories.job_now(db, job_id)
    return {name for name in before if before[name] != after[name]} - {"updated_at"}


def test_pause_in_every_state(installation: Installation, db: Database) -> None:
    for state in State:
        _check_pause(installation, db, state)


def _check_pause(installation: Installation, db: Database, state: State) -> None:
    job_id = factories.make_job(db, state)
    if state in TERMINAL:
        _refused(db, job_id, lambda: _pause(installation, job_id))
    elif state is State.PAUSED:
        assert _changed(db, job_id, lambda: _pause(installation, job_id)) == set()
    elif state is State.RUNNING:
        assert _pause(installation, job_id).reason_text == "pausing after this step"
        assert _last_event(db, job_id) == ("pause_requested", "ann", None, None)
        assert _changed(db, job_id, lambda: _pause(installation, job_id)) == set()
    else:
        view = _pause(installation, job_id)
        assert (view.state, view.reason_text) == (State.PAUSED, "paused by ann")
        assert factories.job_now(db, job_id)["resume_state"] == state
        assert _last_event(db, job_id) == ("pause", "ann", state, State.PAUSED)


def test_cancel_in_every_state(installation: Installation, db: Database) -> None:
    for state in State:
        _check_cancel(installation, db, state)


def _check_cancel(installation: Installation, db: Database, state: State) -> None:
    job_id = factories.make_job(db, state)
    if state is State.CANCELLED:
        assert _changed(db, job_id, lambda: _cancel(installation, job_id)) == set()
    elif state in TERMINAL:
        _refused(db, job_id, lambda: _cancel(installation, job_id))
    elif state is State.RUNNING:
        assert _cancel(installation, job_id).reason_text == "cancelling"
        assert _changed(db, job_id, lambda: _cancel(installation, job_id)) == set()
    else:
        view = _cancel(installation, job_id)
        assert (view.state, view.reason_text) == (State.CANCELLED, "cancelled by ann")
        assert view.pending_question is None  # nobody waits for an answer any more
        assert view.completed_at is not None
        assert _last_event(db, job_id) == ("cancel", "ann", state, State.CANCELLED)


def test_resume_in_every_state(installation: Installation, db: Database) -> None:
    for state in State:
        _check_resume(installation, db, state)


def _check_resume(installation: Installation, db: Database, state: State) -> None:
    job_id = factories.make_job(db, state)
    if state is State.PAUSED:
        view = _resume(installation, job_id)
        assert (view.state, view.reason) == (State.QUEUED, Reason.RESUMED)
        assert factories.job_now(db, job_id)["resume_state"] is None
        assert _last_event(db, job_id) == ("resume", "ann", State.PAUSED, State.QUEUED)
    else:
        error = _refused(db, job_id, lambda: _resume(installation, job_id))
        assert error.hint == "only a paused job can be resumed"


def test_retry_in_every_state(installation: Installation, db: Database) -> None:
    for state in State:
        _check_retry(installation, db, state)


def _check_retry(installation: Installation, db: Database, state: State) -> None:
    job_id = factories.make_job(db, state, attempt=5, model_failures=8)
    if state in TERMINAL and state is not State.SUCCEEDED:
        view = _retry(installation, job_id)
        assert (view.state, view.reason, view.attempt) == (State.QUEUED, Reason.RETRIED, 0)
        assert (view.error, view.result, view.completed_at) == (None, None, None)
        assert factories.job_now(db, job_id)["model_failures"] == 0
        assert _last_event(db, job_id) == ("retry", "ann", state, State.QUEUED)
        factories.claim_job(db, job_id)
    else:
        assert "only a failed, aborted or cancelled job" in str(
            _refused(db, job_id, lambda: _retry(installation, job_id)).hint
        )


def test_retry_may_change_the_model(installation: Installation, db: Database) -> None:
    job_id = factories.make_job(db, State.FAILED, model="a")
    assert _retry(installation, job_id).model == "a"
    _cancel(installation, job_id)
    assert lifecycle.retry(installation, job_id, OWNER, "ann", "b").model == "b"


def test_a_pause_remembers_what_the_job_waited_for(installation: Installation, db: Database) -> None:
    for state in RESUME_EVENTS:
        _check_pause_and_resume(installation, db, state)


def _check_pause_and_resume(installation: Installation, db: Database, state: State) -> None:
    earlier = factories.make_job(db, State.SUCCEEDED, summary_state="pending")
    waits_for = {"inherits_from": earlier} if state is State.INHERITING else {}
    job_id = factories.make_job(db, state, **waits_for)
    before = factories.job_now(db, job_id)
    _pause(installation, job_id)
    view = _resume(installation, job_id)
    assert view.state == state
    after = factories.job_now(db, job_id)
    for name in ("pending_call", "pending_question", "run_id", "resume_state", "completed_at"):
        assert after[name] == before[name], name
    if state is State.WAITING_HUMAN:
        assert view.reason_text == "asks a person: Which colour?"
        assert view.pending_question == {"question": "Which colour?"}


def test_a_pause_does_not_bring_a_scheduled_job_forward(installation: Installation, db: Database) -> None:
    """Pausing and resuming a job of tomorrow started it today; a rate limit's wait was cut short the same way."""
    job_id = factories.make_job(db, available_at=wall_clock() + 86_400, reason=Reason.SCHEDULED)
    due = factories.job_now(db, job_id)["available_at"]
    _pause(installation, job_id)
    view = _resume(installation, job_id)
    assert (view.state, view.reason, view.available_at) == (State.QUEUED, Reason.SCHEDULED, due)
    assert view.reason_text is not None
    assert "unknown" not in view.reason_text
    factories.set_columns(db, job_id, available_at=wall_clock() - 5)
    _pause(installation, job_id)
    assert _resume(installation, job_id).reason == Reason.RESUMED  # its time has come meanwhile


def test_a_pause_that_was_not_carried_out_is_taken_back(installation: Installation, db: Database) -> None:
    job_id = factories.make_job(db, State.RUNNING)
    _pause(installation, job_id)
    assert _resume(installation, job_id).reason_text is None
    assert _last_event(db, job_id)[0] == "pause_withdrawn"
    assert not factories.job_now(db, job_id)["pause_requested"]


def test_a_run_under_compressing_ends_with_the_pause(installation: Installation, db: Database) -> None:
    for act in (_pause, _cancel):
        run_id = factories.new_id("run")
        job_id = factories.make_job(db, State.COMPRESSING, run_id=run_id)
        assert act(installation, job_id).state in (State.PAUSED, State.CANCELLED)
        assert factories.rows_of(db, runs, job_id)[0]["ended_at"] is not None
        with pytest.raises(LeaseLost):
            factories.commit(db, RunRef(run_id, job_id), factories.said("a summary too late"))


def test_raising_a_budget(installation: Installation, db: Database) -> None:
    used_up = {"reason": Reason.BUDGET_EXCEEDED, "reason_data": {"budget": "steps", "limit": 5}}
    job_id = factories.make_job(db, State.PAUSED, max_steps=5, max_cost=1.0, **used_up)
    view = _resume(installation, job_id, max_steps=10, max_seconds=60)
    assert view.state == State.QUEUED
    assert view.budget == {"max_steps": 10, "max_tokens": None, "max_cost": 1.0, "max_seconds": 60}
    running = factories.make_job(db, State.RUNNING)
    assert _resume(installation, running, max_tokens=7).budget["max_tokens"] == 7
    assert _last_event(db, running)[0] == "budget_raised"


def test_a_budget_that_makes_no_sense_changes_nothing(installation: Installation, db: Database) -> None:
    """2**63 was an error of the driver; infinity is not JSON, and broke whoever listed the job."""
    job_id = factories.make_job(db, State.PAUSED)
    before = factories.job_now(db, job_id)
    for name in ("max_steps", "max_tokens", "max_cost", "max_seconds"):
        for value in (0, -1, math.nan, math.inf, 10**10, 2**63):
            with pytest.raises(UsageError, match=name) as caught:
                lifecycle.resume(installation, job_id, OWNER, "ann", Budget(**{name: value}))  # type: ignore[arg-type]
            assert "\n" not in str(caught.value)
    assert factories.job_now(db, job_id) == before


@pytest.mark.parametrize("act", ACTIONS)
def test_someone_elses_job_is_not_there(
    installation: Installation, db: Database, act: Callable[..., JobView]
) -> None:
    job_id = factories.make_job(db, State.PAUSED)
    before = factories.job_now(db, job_id)
    with pytest.raises(JobNotFound):
        act(installation, job_id, "eve")
    with pytest.raises(JobNotFound):
        act(installation, "no such job")
    assert factories.job_now(db, job_id) == before


def test_an_administrator_may_act_on_any_job(installation: Installation, db: Database) -> None:
    job_id = factories.make_job(db)
    assert _cancel(installation, job_id, None).state == State.CANCELLED


def test_who_makes_a_job_due_marks_its_wake_up(installation: Installation, db: Database) -> None:
    """Otherwise the sweep sends a second one for each, at once."""
    for state, act in (
        (State.PAUSED, lambda job: _resume(installation, job)),
        (State.FAILED, lambda job: _retry(installation, job)),
        (State.WAITING_HUMAN, lambda job: add_comment(installation, job, OWNER, "blue", "ann")),
    ):
        job_id = factories.make_job(db, state, woken_at=0, available_at=1.0)
        act(job_id)
        assert factories.job_now(db, job_id)["state"] == State.QUEUED
        assert take_unwoken_jobs(db, State.QUEUED, 60.0, 10) == [], state


def test_leased_is_what_may_have_a_run() -> None:
    assert {State.RUNNING, State.COMPRESSING} == LEASED
