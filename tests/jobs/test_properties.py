"""Any sequence of what people and a run may do keeps the invariants of a job's row."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs import lifecycle
from jobs.comments import add_comment, reply
from jobs.errors import IllegalTransition, InboxChanged, LeaseLost, RequestPending
from jobs.installation import Installation
from jobs.lifecycle import Budget
from jobs.reasons import Reason
from jobs.settings import Settings
from jobs.states import LEASED, TERMINAL, Event, State, target
from jobs.views import get_job
from storage.engine import Database
from storage.jobs import job_tx
from storage.migrate import upgrade
from storage.models import comments, job_events, messages, runs
from storage.records import NewEvent, RunRef
from storage.runs import claim_best, end_run_if_expired
from tests import factories
from tests.factories import OWNER, commit, move, returned, said

ACTIONS = (
    "pause", "resume", "cancel", "retry", "comment", "reply", "claim", "claim", "step", "see", "requeue", "requeue late",
    "ask", "complete", "fail", "honour", "die", "zombie",
)  # fmt: skip


class Story:
    """One job, the run that owns it or last owned it, and what may happen to both."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.db = installation.db
        self.job_id = factories.make_job(self.db)
        self.run: RunRef | None = None
        self.dead: RunRef | None = None
        self.calls = 0

    def act(self, action: str) -> None:
        inst, job_id = self.installation, self.job_id
        if action in ("pause", "cancel"):
            (lifecycle.pause if action == "pause" else lifecycle.cancel)(inst, job_id, OWNER, "ann")
        elif action == "resume":
            lifecycle.resume(inst, job_id, OWNER, "ann", Budget())
        elif action == "retry":
            lifecycle.retry(inst, job_id, OWNER, "ann", None)
        elif action in ("comment", "reply"):
            (add_comment if action == "comment" else reply)(inst, job_id, OWNER, "hello", "ann")
        elif action == "claim":
            asked = factories.claim()
            if claim_best(self.db, asked, job_id) is not None:
                self.run = RunRef(asked.run_id, job_id)
        elif action == "zombie":
            if self.dead is not None:
                commit(self.db, self.dead, said("zombie"))
                raise AssertionError("a dead run wrote")
        elif self.run is not None:
            self.act_as_run(action, self.run)

    def act_as_run(self, action: str, run: RunRef) -> None:
        row = factories.job_now(self.db, self.job_id)
        seen = row["inbox_seen"]
        self.calls += 1
        call = f"c{self.calls}"
        if action == "step":
            commit(self.db, run, said("x", (call, "Bash", "{}")), steps=1)
            commit(self.db, run, returned(call, "y"))
        elif action == "see":
            commit(self.db, run, inbox_seen=row["inbox_total"])
        elif action == "requeue":
            self.end(run, Event.REQUEUE, unless=("pause_requested", "cancel_requested"))
        elif action == "requeue late":
            self.end(run, Event.REQUEUE, delay=0.2)
        elif action == "ask":
            commit(self.db, run, said(None, (call, "transition", "{}")))
            asked = {"pending_call": call, "pending_question": {"question": "?"}}
            self.end(run, Event.ASK, seen, remark=("question", "?"), parks=(call,), values=asked)
        elif action == "complete":
            self.end(run, Event.SUCCEED, seen, remark=("result", "done"))
        elif action == "fail":
            self.end(run, Event.FAIL)
        elif action == "honour":
            if row["cancel_requested"]:
                self.end(run, Event.CANCEL)
            elif row["pause_requested"]:
                self.end(run, Event.PAUSE, values={"resume_state": State.QUEUED})
        elif action == "die":
            factories.expire_lease(self.db, run)
            with job_tx(self.db, self.job_id) as job:
                assert end_run_if_expired(job.conn, run) == factories.WORKER
                changes = {"state": State.QUEUED, "run_id": None, "attempt": job.row["attempt"] + 1}
                changes |= {"reason": Reason.WORKER_LOST, "pause_requested": False, "cancel_requested": False}
                job.update(changes, NewEvent(Event.LEASE_EXPIRED, "sweep", State.RUNNING, State.QUEUED))
            self.over(run)

    def end(
        self, run: RunRef, event: Event, expect: int | None = None, *, delay: float = 0.0,
        unless: tuple[str, ...] = (), **fields: object,
    ) -> None:  # fmt: skip
        end = target(State.RUNNING, event)
        assert end is not None
        ending = move(end, event, reason=Reason.SLICE_OVER, delay=delay, unless=unless)
        commit(self.db, run, move=ending, expect_inbox=expect, **fields)
        self.over(run)

    def over(self, run: RunRef) -> None:
        self.run, self.dead = None, run

    def check(self) -> None:
        row = factories.job_now(self.db, self.job_id)
        state = State(row["state"])
        assert (row["run_id"] is not None) == (state is State.RUNNING)
        assert row["run_id"] is None or state in LEASED
        assert row["run_id"] == (self.run.run_id if self.run else None)
        assert (row["completed_at"] is not None) == (state in TERMINAL)
        assert (row["reason"] is None) == (state is State.RUNNING)
        assert 0 <= row["inbox_seen"] <= row["inbox_total"]
        assert (row["resume_state"] is not None) == (state is State.PAUSED)
        if state in TERMINAL:
            assert not row["pause_requested"]
            assert not row["cancel_requested"]
        if state is State.WAITING_HUMAN:
            assert row["pending_call"] is not None
        history = factories.rows_of(self.db, job_events, self.job_id)
        assert [event["seq"] for event in history] == list(range(1, row["event_seq"] + 1))
        assert len(factories.rows_of(self.db, comments, self.job_id)) == row["inbox_total"]
        assert len(factories.rows_of(self.db, messages, self.job_id)) == row["total_messages"]
        live = [run for run in factories.rows_of(self.db, runs, self.job_id) if run["ended_at"] is None]
        assert [run["id"] for run in live] == ([row["run_id"]] if row["run_id"] else [])
        moves = [event for event in history if event["to_state"] is not None]
        for before, after in pairwise(moves):
            assert after["from_state"] in (before["to_state"], None)
        if moves:
            assert moves[-1]["to_state"] == state
        view = get_job(self.installation, self.job_id, OWNER)
        assert (view.reason_text is None) <= (state is State.RUNNING)


@contextlib.contextmanager
def _installation() -> Iterator[Installation]:
    with tempfile.TemporaryDirectory() as folder:
        chosen = Settings(data_dir=Path(folder), broker_url=f"redis+socket://{folder}/none")
        installation = Installation(chosen, Database(chosen.database_url))
        upgrade(installation.db)
        installation.wakeups.close()
        yield installation
        installation.close()


class _Silent:
    """Wake-ups that nobody hears."""

    def send_and_wait(self, _queue: str, _job_id: str) -> bool:
        return False

    def close(self) -> None:
        pass


def test_any_sequence_keeps_the_invariants() -> None:
    with _installation() as installation:
        installation.__dict__["wakeups"] = _Silent()

        @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.lists(st.sampled_from(ACTIONS), max_size=25))
        def tell(actions: list[str]) -> None:
            story = Story(installation)
            for action in actions:
                before = factories.job_now(installation.db, story.job_id)
                try:
                    story.act(action)
                except (IllegalTransition, InboxChanged, LeaseLost, RequestPending):
                    if action != "ask":  # its first commit was accepted
                        assert factories.job_now(installation.db, story.job_id) == before
                story.check()
            factories.set_columns(
                installation.db, story.job_id, available_at=9e12
            )  # out of the next story's way

        tell()
