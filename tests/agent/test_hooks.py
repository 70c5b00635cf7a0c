"""Hooks: told at least once of each end and each stop, after the commit; what they do wrong only warns."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from jobs.errors import ConfigurationError
from storage.engine import wall_clock
from storage.hooks import take_hook_call
from storage.models import hook_calls
from tests.agent.stage import COMPLETE, PowerCut, Stage, call, calls, go
from tests.hook_example import install_example
from worker import hooks
from worker.hooks import MOST_HUNG, register_hook

Event = dict[str, Any]


class Told(list[Event]):
    """A hook that keeps what it was told, and then does something."""

    def __init__(self, effect: Callable[[Event], object] | None = None) -> None:
        super().__init__()
        self.effect = effect

    def __call__(self, event: Event) -> None:
        self.append(json.loads(json.dumps(event)))  # plain JSON data
        if self.effect is not None:
            self.effect(event)

    @property
    def states(self) -> list[str]:
        return [event["job"]["state"] for event in self]


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "_registered", {})


def hooked(stage: Stage, timeout: float = 30, **named: Told) -> None:
    """Registers the hooks and configures each for both kinds of event."""
    for name, hook in named.items():
        register_hook(name, hook)
    stage.reopen(hooks={"completion": list(named), "pause": list(named), "timeout": timeout})


def waiting(stage: Stage) -> list[str]:
    """The hooks of the calls that are still to be made."""
    with stage.doors.db.read() as conn:
        return list(conn.execute(sa.select(hook_calls.c.name).order_by(hook_calls.c.id)).scalars())


def free(stage: Stage) -> None:
    """Lets the time of every caller that died pass."""
    with stage.doors.db.write() as conn:
        conn.execute(sa.update(hook_calls).values(free_at=wall_clock()))


def test_an_end_is_told_as_the_job_is_shown(stage: Stage) -> None:
    told = Told()
    hooked(stage, log=told)
    job_id = stage.play(COMPLETE, metadata={"ticket": 7})
    assert told == []  # nothing is called inside of the job's own run
    stage.process.hooks.call_due()
    [event] = told
    seq = stage.row(job_id)["event_seq"]
    assert (event["event"], event["event_id"]) == ("completion", f"{job_id}/{seq}")
    assert event["job"] == stage.job(job_id).as_dict()
    assert (event["job"]["result"], event["job"]["metadata"]) == ("all is done", {"ticket": 7})
    stage.process.hooks.call_due()
    assert len(told) == 1
    assert waiting(stage) == []


def test_every_way_to_stop_or_end_is_told_whoever_makes_it(stage: Stage) -> None:
    """Ends by the agent, by a person at the command line and by the sweep, and every kind of stop."""
    told = Told()
    hooked(stage, log=told)
    stage.play(go("ABORT", "no use"))
    stage.cancel(stage.submit())
    stage.pause(stage.submit())
    asked = stage.play(go("ASK", "Which?"))
    stage.cancel(asked)
    stage.play(calls(call("Act")), budget={"max_steps": 1})
    stage.restart(max_attempts=1)
    dead = stage.submit()
    stage.acts[0].effect = _die
    stage.tell(calls(call("Act")))
    stage.crash()
    stage.sweep()
    assert stage.job(dead).state == "failed"
    stage.process.hooks.call_due()
    expected = ["aborted", "cancelled", "paused", "waiting_human", "cancelled", "paused", "failed"]
    assert sorted(told.states) == sorted(expected)
    assert {event["event"] for event in told if event["job"]["state"] in ("paused", "waiting_human")} == {
        "pause"
    }
    [question] = [event["job"] for event in told if event["job"]["state"] == "waiting_human"]
    assert question["pending_question"] == {"question": "Which?"}


def _die(*_: object) -> str:
    raise PowerCut


def test_a_pause_is_told_even_when_the_job_has_ended_meanwhile(stage: Stage) -> None:
    """Both events are told, in order, and each as the job was when it happened."""
    told = Told()
    hooked(stage, log=told)
    job_id = stage.submit()
    stage.pause(job_id)
    stage.resume(job_id)
    stage.tell(COMPLETE)
    stage.run()
    stage.process.hooks.call_due()
    assert told.states == ["paused", "succeeded"]


def test_completion_and_pause_are_configured_apart(stage: Stage) -> None:
    ends, stops = Told(), Told()
    register_hook("ends", ends)
    register_hook("stops", stops)
    stage.reopen(hooks={"completion": ["ends"], "pause": ["stops"]})
    job_id = stage.submit()
    stage.pause(job_id)
    stage.cancel(job_id)
    stage.process.hooks.call_due()
    assert (ends.states, stops.states) == (["cancelled"], ["paused"])


def test_nothing_is_written_where_no_hook_is_configured(stage: Stage) -> None:
    stage.play(COMPLETE)
    stage.pause(stage.submit())
    assert waiting(stage) == []


def test_what_was_refused_is_not_told(stage: Stage) -> None:
    """COMPLETE with an unread comment is no end: no call may be left of the transaction that was rolled back."""
    told = Told()
    hooked(stage, log=told)
    ids: list[str] = []

    def complete(_request: object) -> Any:
        stage.comment(ids[0], "wait")
        return COMPLETE

    stage.tell(complete, COMPLETE)
    ids.append(stage.submit())
    stage.run()
    assert waiting(stage) == ["log"]


@pytest.mark.parametrize("error", [ValueError("no such channel"), SystemExit(3)])
def test_a_hook_that_fails_only_warns(stage: Stage, error: BaseException) -> None:
    def fail(_event: Event) -> None:
        raise error

    bad, good = Told(fail), Told()
    hooked(stage, bad=bad, good=good)
    job_id = stage.play(COMPLETE)
    stage.process.hooks.call_due()
    assert (bad.states, good.states) == (["succeeded"], ["succeeded"])
    [warning] = stage.events(job_id, "hook_failed")
    assert (warning["hook"], warning["event_id"]) == ("bad", bad[0]["event_id"])
    assert warning["problem"] == f"{type(error).__name__}: {error}"
    assert (stage.job(job_id).state, stage.job(job_id).result) == ("succeeded", "all is done")
    assert waiting(stage) == []


def test_a_hook_that_hangs_is_left_behind(stage: Stage) -> None:
    """It holds up neither the others nor the worker; when too many calls of it hang, the next ones wait."""
    release = threading.Event()
    slow, good = Told(lambda _: release.wait(60)), Told()
    hooked(stage, timeout=0.05, good=good, slow=slow)
    ids = [stage.submit() for _ in range(MOST_HUNG + 2)]
    for job_id in ids:
        stage.cancel(job_id)
    stage.process.hooks.call_due()
    assert len(good) == len(ids)
    assert len(slow) == MOST_HUNG
    assert waiting(stage) == ["slow", "slow"]
    warned = [e for job_id in ids for e in stage.events(job_id, "hook_failed")]
    assert [e["problem"] for e in warned] == ["it did not return within 0.05 s"] * MOST_HUNG
    release.set()
    for _, thread in stage.process.hooks._hung:
        thread.join(60)
    stage.process.hooks.call_due()
    assert len(slow) == len(ids)
    assert waiting(stage) == []


def test_a_hook_may_look_at_the_job_and_change_it(stage: Stage) -> None:
    """No transaction is open while it runs: a hook that answers or retries must not wait for itself."""
    told = Told(lambda event: stage.reply(event["job"]["id"], "blue"))
    hooked(stage, log=told)
    job_id = stage.play(go("ASK", "Which?"))
    stage.process.hooks.call_due()
    assert stage.job(job_id).reason == "answered"


def test_two_workers_do_not_make_the_same_call(stage: Stage) -> None:
    hooked(stage, log=Told())
    stage.cancel(stage.submit())
    db = stage.process.db
    first = take_hook_call(db, ["log"], 60)
    assert first is not None
    assert take_hook_call(stage.doors.db, ["log"], 60) is None
    free(stage)  # the first one died
    assert take_hook_call(stage.doors.db, ["log"], 60) == first
    assert take_hook_call(db, ["another"], 60) is None


def test_a_call_whose_caller_died_is_made_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after the hook ran and before that was noted: told twice, as the same event."""
    told = Told()
    hooked(stage, log=told)
    stage.cancel(stage.submit())

    def die(*_: object) -> None:
        raise PowerCut

    with monkeypatch.context() as patch:
        patch.setattr(stage.process.hooks, "_note", die)
        with pytest.raises(PowerCut):
            stage.process.hooks.call_due()
    free(stage)
    stage.new_process("worker-2").hooks.call_due()
    assert len(told) == 2
    assert told[0] == told[1]
    assert waiting(stage) == []


def test_the_thread_calls_when_it_is_woken_and_ends_when_it_is_stopped(stage: Stage) -> None:
    called = threading.Event()
    hooked(stage, log=Told(lambda _: called.set()))
    caller = stage.process.hooks
    caller.start()
    stage.cancel(stage.submit())
    stage.sweep()
    assert called.wait(60)
    caller.stop()
    caller.join(60)
    assert not caller.is_alive()


def test_a_hook_that_is_not_installed_stops_the_worker_at_its_start(stage: Stage) -> None:
    with pytest.raises(ConfigurationError, match="there is no hook 'nobody'") as caught:
        stage.reopen(hooks={"completion": ["nobody"]})
    assert "sostenuto.hooks" in str(caught.value.hint)


def test_an_installed_package_is_found_by_its_entry_point(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    install_example(site)
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("JOB_LOG", str(tmp_path / "jobs.jsonl"))
    with pytest.raises(ConfigurationError, match="did you mean 'job-log'"):
        stage.reopen(hooks={"pause": ["joblog"]})
    stage.reopen(hooks={"completion": ["job-log"]})
    job_id = stage.play(COMPLETE)
    stage.process.hooks.call_due()
    [line] = (tmp_path / "jobs.jsonl").read_text().splitlines()
    logged = json.loads(line)
    assert (logged["id"], logged["state"], logged["result"]) == (job_id, "succeeded", "all is done")
