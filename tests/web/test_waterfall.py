"""Where a job's time went: bars without gaps, waits told apart, long ones shortened, a bounded part at once."""

from __future__ import annotations

import pytest

from jobs import comments
from jobs.states import State
from jobs.web.waterfall import ROWS, Bar, Mark, Waterfall, short_time, waterfall_of
from jobs.web.words import Words
from storage.records import NewEvent, NewMessage
from tests.factories import expire_lease, job_now, set_columns
from tests.web.conftest import Client, Site
from tests.web.rows import Past

on_sqlite = pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)


def _fall(site: Site, job_id: str, before: tuple[int, int] | None = None) -> Waterfall:
    return waterfall_of(site.installation, job_id, job_now(site.db, job_id)["state"], before)


def _bars(fall: Waterfall) -> list[Bar]:
    return [row for row in fall.rows if isinstance(row, Bar)]


@on_sqlite
def test_queue_model_tools_and_a_question(site: Site) -> None:
    past = Past(site.installation)
    past.begin()
    first, second = past.say("One.", ("Read", {}), ("Bash", {}))
    past.answer(first, "text", "Read")
    past.answer(second, "no", "Bash", is_error=True)
    past.ask("Which?")
    fall = _fall(site, past.id)
    shown = [(bar.kind, bar.name, bar.failed) for bar in _bars(fall)]
    assert shown == [
        ("queue", "", False), ("model", "", False), ("tool", "Read", False), ("tool", "Bash", True), ("model", "", False),
        ("human", "", False),
    ]  # fmt: skip
    assert _bars(fall)[-1].end is None
    marks = [(row.kind, row.name) for row in fall.rows if isinstance(row, Mark)]
    assert marks == [("claim", "host:1"), ("movement", "work")]
    comments.reply(site.installation, past.id, None, "This.", "ann")
    assert [bar.kind for bar in _bars(_fall(site, past.id))][-2:] == ["human", "queue"]


@on_sqlite
def test_what_runs_now_goes_on(site: Site) -> None:
    past = Past(site.installation)
    past.begin()
    assert (_bars(_fall(site, past.id))[-1].kind, _bars(_fall(site, past.id))[-1].end) == ("model", None)
    past.say("One.", ("Bash", {}))
    last = _bars(_fall(site, past.id))[-1]
    assert (last.kind, last.name, last.end) == ("tool", "Bash", None)
    past.succeed("Done.")
    assert all(bar.end is not None for bar in _bars(_fall(site, past.id)))


@on_sqlite
def test_a_long_wait_is_drawn_shortened_and_told_whole(site: Site) -> None:
    """A day's wait for an answer leaves the seconds of work to be seen."""
    past = Past(site.installation)
    past.begin()
    past.say("One.")
    past.write(events=[NewEvent("pause", "ann", "running", "paused")])
    set_columns(site.db, past.id, state="paused", run_id=None, reason="paused_by_user")
    later = site.db.clock() + 86_400
    site.db.clock = lambda: later
    fall = _fall(site, past.id)
    wait = _bars(fall)[-1]
    assert (wait.kind, wait.cut) == ("paused", True)
    assert wait.seconds > 86_000
    assert wait.width < 90
    assert all(bar.x + bar.width <= 100.1 for bar in _bars(fall))
    assert fall.totals["paused"] == wait.seconds


@on_sqlite
def test_a_long_past_comes_in_parts_that_meet(site: Site, client: Client) -> None:
    """Every message is a bar of one part, however the two sequences lie; the first part is as large as any."""
    past = Past(site.installation)
    past.begin()
    for start in range(0, 1000, 100):
        past.write(*[NewMessage("assistant", "assistant", f"{start + n}") for n in range(100)])
        past.write(events=[NewEvent("note", "worker") for _ in range(50)])
    seen: list[int] = []
    before, parts = None, 0
    while True:
        fall = _fall(site, past.id, before)
        seen = [bar.seq for bar in _bars(fall) if bar.seq] + seen
        parts += 1
        assert len(fall.rows) <= ROWS + 1
        if not fall.has_older:
            break
        before = fall.first
    assert parts >= 10
    assert len(seen) == len(set(seen)) >= 1000 - parts
    html = client("local").get(f"/jobs/{past.id}/progress").text
    assert "?before=" in html


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.0, "0 ms"), (0.34, "340 ms"), (2.4, "2.4 s"), (59.0, "59 s"), (190, "3 min 10 s"), (7500, "2 h 5 min"), (273_600, "3 d 4 h")],
)  # fmt: skip
def test_durations_are_short(seconds: float, told: str) -> None:
    assert short_time(seconds, Words("en")) == told


@on_sqlite
def test_a_dead_worker_is_a_mark_and_its_time_is_lost(site: Site) -> None:
    past = Past(site.installation)
    past.begin()
    expire_lease(site.db, past.run)
    past.write(events=[NewEvent("lease_expired", "sweep", State.RUNNING, State.QUEUED)])
    fall = _fall(site, past.id)
    assert [(bar.kind, bar.failed) for bar in _bars(fall) if bar.kind == "own"] == [("own", True)]
    assert any(isinstance(row, Mark) and row.kind == "lease_expired" for row in fall.rows)
