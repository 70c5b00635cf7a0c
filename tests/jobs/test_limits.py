"""What submitters see of limits: why a job waits, and that no more are accepted than may wait."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jobs import lifecycle, views
from jobs.errors import TooManyQueued
from jobs.installation import Installation
from jobs.lifecycle import Budget
from jobs.settings import LimitSettings
from jobs.states import State
from jobs.submit import SubmitRequest, submit
from jobs.web.reasons import what_next, why
from jobs.web.words import Words
from storage import jobs as store
from storage.listing import JobFilter
from storage.runs import claim_best
from tests import factories
from tests.factories import claim


def _limited(installation: Installation, **limits: Any) -> LimitSettings:
    settings = LimitSettings.model_validate(limits)
    installation.settings = installation.settings.model_copy(update={"limits": settings})
    return settings


def test_a_held_job_says_why_in_every_place(installation: Installation) -> None:
    db = installation.db
    limits = _limited(installation, per_repository={"o/*": 1})
    factories.running_job(db, repository="o/r")
    job_id = factories.make_job(db, repository="o/r")
    factories.make_job(db, repository="p/r")  # no limit fits it
    assert claim_best(db, claim(limit_of=limits.of), job_id) is not None
    assert claim_best(db, claim(limit_of=limits.of), job_id) is None
    view = views.get_job(installation, job_id, "local")
    assert (view.state, view.reason) == ("queued", "limited")
    assert view.reason_text == "limit of 1 running for repository o/r"
    assert view.next_action == "it goes on by itself when one of them ends or waits"
    row, zone = store.get_job(db, job_id), installation.settings.zone()
    assert why(row, Words("en"), zone) == view.reason_text
    assert why(row, Words("ja"), zone) == "リポジトリ o/r で同時に実行できる 1 件に達しています"
    assert what_next(row, Words("ja"), zone).startswith("そのうちの一つが")
    found = {
        reason: [job.id for job in views.find_jobs(installation, JobFilter(reasons=[reason]), 10)]
        for reason in ("limited", "new")
    }
    assert found == {"limited": [job_id], "new": []}


@pytest.mark.parametrize("then", ["resume", "retry"])
def test_what_people_do_ends_a_hold(installation: Installation, then: str) -> None:
    db = installation.db
    limits = _limited(installation, per_piece=1)
    factories.running_job(db)
    job_id = factories.make_job(db)
    assert claim_best(db, claim(limit_of=limits.of), None) is None
    if then == "resume":
        assert lifecycle.pause(installation, job_id, "local", "ann").reason == "paused_by_user"
        assert lifecycle.resume(installation, job_id, "local", "ann", Budget()).reason == "resumed"
    else:
        assert lifecycle.cancel(installation, job_id, "local", "ann").state == State.CANCELLED
        assert lifecycle.retry(installation, job_id, "local", "ann", None).reason == "retried"
    assert claim_best(db, claim(limit_of=limits.of), None) is None
    assert views.get_job(installation, job_id, "local").reason == "limited"


def test_no_more_are_accepted_than_may_wait(installation: Installation) -> None:
    _limited(installation, max_queued=5, max_queued_per_owner=4)

    def ask(number: int) -> str | None:
        try:
            return submit(
                installation, SubmitRequest(f"Do {number}.", idempotency_key=f"k{number}"), "ann"
            ).job.id
        except TooManyQueued:
            return None

    with ThreadPoolExecutor(8) as pool:
        accepted = list(pool.map(ask, range(12)))
    assert len([job for job in accepted if job]) == 4
    assert len(list((installation.settings.data_dir / "workspaces").glob("*/*"))) <= 12
    assert submit(installation, SubmitRequest("Do it."), "bob").created
    with pytest.raises(TooManyQueued, match="5 jobs in this installation wait already"):
        submit(installation, SubmitRequest("Do it."), "bob")
    again = [ask(number) for number in range(12)]
    assert [job for job in again if job] == [job for job in accepted if job]  # the same keys, the same jobs
    claim_best(installation.db, claim(), None)
    assert submit(installation, SubmitRequest("Do it."), "cid").created  # one runs, and waits no more


def test_a_job_that_was_accepted_is_never_refused_again(installation: Installation) -> None:
    made = [submit(installation, SubmitRequest("Do it."), "local").job.id for _ in range(3)]
    lifecycle.pause(installation, made[0], "local", "ann")
    lifecycle.cancel(installation, made[1], "local", "ann")
    _limited(installation, max_queued=1)
    assert lifecycle.resume(installation, made[0], "local", "ann", Budget()).state == State.QUEUED
    assert lifecycle.retry(installation, made[1], "local", "ann", None).state == State.QUEUED
    with pytest.raises(TooManyQueued):
        submit(installation, SubmitRequest("Do it."), "local")
