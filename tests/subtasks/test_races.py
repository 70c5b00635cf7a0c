"""Children that end at the same instant, by every way to end: the parent wakes exactly once, never zero times."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from jobs import lifecycle
from jobs.installation import Installation
from jobs.lifecycle import Budget
from jobs.reasons import Reason
from jobs.states import Event, State
from storage.checkpoints import commit_if_run_owns
from storage.engine import Database
from storage.errors import NoOpenChildren
from storage.models import job_events
from storage.records import Checkpoint, Commit, NewEvent, RunRef
from storage.subtasks import insert_child_if_run_owns
from tests import factories
from worker.endings import leaving

ROUNDS = 300
ENDS = {
    Event.SUCCEED: Reason.COMPLETED,
    Event.FAIL: Reason.INTERNAL_ERROR,
    Event.ABORT: Reason.ABORTED_BY_AGENT,
    Event.CANCEL: Reason.CANCELLED_BY_USER,
}
Act = Callable[[], str | None]


@pytest.fixture
def second(installation: Installation, migrated_url: str) -> Iterator[Installation]:
    """The same database as another process sees it: on SQLite the writers' gate of one does not order the other."""
    opened = Installation(installation.settings, Database(migrated_url))
    yield opened
    opened.close()


def waiting_parent(db: Database, children: int, **changes: object) -> str:
    return factories.make_job(
        db, State.WAITING_SUBTASKS, children_open=children, children_total=children, **changes
    )


def end_by_run(db: Database, child: RunRef, event: Event) -> str | None:
    move = leaving(State.RUNNING, event, ENDS[event])
    return commit_if_run_owns(db, child, Checkpoint(Commit.END, move=move)).woken_parent


def end_by_person(installation: Installation, child: str) -> None:
    lifecycle.cancel(installation, child, None, "ann")


def at_once(*acts: Act) -> list[str | None]:
    """Runs them in threads of their own, begun at the same instant; what one raised is raised here."""
    gate = threading.Barrier(len(acts))
    results: list[str | None] = []
    errors: list[BaseException] = []

    def run(act: Act) -> None:
        gate.wait()
        try:
            results.append(act())
        except BaseException as error:  # noqa: BLE001 - raised again in the test's thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def wakings(db: Database, parent: str) -> int:
    return sum(row["kind"] == Event.SUBTASKS_DONE for row in factories.rows_of(db, job_events, parent))


def test_the_last_two_children_end_together(installation: Installation, second: Installation) -> None:
    """Two runs end their jobs, in pairs of all kinds: one of them, and only one, is told to wake the parent."""
    db = installation.db
    kinds = list(ENDS)
    for number in range(ROUNDS):
        parent = waiting_parent(db, 2)
        one, two = factories.running_jobs(db, 2, parent_id=parent)
        first, other = kinds[number % 4], kinds[number // 4 % 4]

        woken = at_once(partial(end_by_run, db, one, first), partial(end_by_run, second.db, two, other))

        row = factories.job_now(db, parent)
        assert (row["state"], row["reason"], row["children_open"]) == ("queued", "subtasks_done", 0)
        assert sorted(woken, key=str) == sorted([parent, None], key=str)
        assert wakings(db, parent) == 1


def test_a_run_and_a_person_end_the_last_two(installation: Installation, second: Installation) -> None:
    db = installation.db
    for _ in range(ROUNDS // 3):
        parent = waiting_parent(db, 2)
        [one] = factories.running_jobs(db, 1, parent_id=parent)
        two = factories.make_job(db, State.WAITING_HUMAN, parent_id=parent)
        at_once(partial(end_by_run, db, one, Event.SUCCEED), partial(end_by_person, second, two))
        row = factories.job_now(db, parent)
        assert (row["state"], row["children_open"], wakings(db, parent)) == ("queued", 0, 1)


def test_the_last_child_ends_while_its_parent_begins_to_wait(
    installation: Installation, second: Installation
) -> None:
    """Either the parking commit is refused, or the child finds its parent waiting: never a sleeper."""
    db = installation.db
    parked = 0
    for _ in range(ROUNDS):
        [parent] = factories.running_jobs(db, 1, children_open=1, children_total=1)
        [child] = factories.running_jobs(db, 1, parent_id=parent.job_id)

        def park(parent: RunRef = parent) -> str | None:
            move = leaving(State.RUNNING, Event.AWAIT_SUBTASKS, Reason.SUBTASKS)
            try:
                commit_if_run_owns(second.db, parent, Checkpoint(Commit.END, move=move, expect_children=True))
            except NoOpenChildren:
                return "refused"
            return "parked"

        results = at_once(partial(end_by_run, db, child, Event.SUCCEED), park)
        row = factories.job_now(db, parent.job_id)
        assert row["children_open"] == 0
        if "parked" in results:
            parked += 1
            assert (row["state"], wakings(db, parent.job_id)) == ("queued", 1)
        else:
            assert (row["state"], row["run_id"]) == ("running", parent.run_id)
    assert parked > 0  # else the race was not run


def test_the_last_child_ends_while_its_parent_is_paused_and_resumed(
    installation: Installation, second: Installation
) -> None:
    db = installation.db

    def pause_and_resume(parent: str) -> None:
        lifecycle.pause(second, parent, None, "ann")
        lifecycle.resume(second, parent, None, "ann", Budget())

    for _ in range(ROUNDS // 6):
        parent = waiting_parent(db, 1)
        [child] = factories.running_jobs(db, 1, parent_id=parent)
        at_once(partial(end_by_run, db, child, Event.SUCCEED), partial(pause_and_resume, parent))
        row = factories.job_now(db, parent)
        assert (row["state"], row["children_open"], wakings(db, parent)) == ("queued", 0, 1)


def test_a_child_is_begun_while_another_ends(installation: Installation, second: Installation) -> None:
    """Both count in the parent's row; neither count is lost."""
    db = installation.db
    piece = {"name": "x"}
    for _ in range(ROUNDS // 6):
        [parent] = factories.running_jobs(db, 1, children_open=1, children_total=1)
        [child] = factories.running_jobs(db, 1, parent_id=parent.job_id)
        row = factories.submitted_row(parent_id=parent.job_id)

        def begin(parent: RunRef = parent, row: dict[str, object] = row) -> None:
            event = NewEvent("submit", "agent")
            insert_child_if_run_owns(second.db, parent, row, "Do it.", piece, event=event, most=9)

        at_once(partial(end_by_run, db, child, Event.FAIL), begin)
        now = factories.job_now(db, parent.job_id)
        assert (now["children_open"], now["children_total"], now["state"]) == (1, 2, "running")
