"""A job begins with what an earlier one on the same thing left: which one, when it waits, what it reads."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.errors import IllegalTransition, JobNotFound, PredecessorNotFound, UsageError
from jobs.inheritance import LONGEST_WAIT
from jobs.reasons import Reason
from jobs.states import State
from jobs.submit import SubmitRequest, submit
from jobs.views import list_children
from storage.comments import list_comments
from storage.models import jobs
from tests import factories
from tests.agent.stage import COMPLETE, PowerCut, Stage, call, calls, go
from tests.inherit.family import (
    KEY,
    SUMMARY,
    ended,
    first_head,
    follow,
    head,
    make_summary_due,
    pass_time,
    summarised,
    write_summary,
)
from tests.strict_endpoint import Answer, ChatRequest, HttpFailure, Reply
from worker.inherited import MOST_HOPS
from worker.tokens import estimate_tokens

TEXT = str(SUMMARY.text)
NO_KEY = HttpFailure(401, {"error": {"message": "bad key"}})

# --- which job is followed ---

LOOKUPS: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "the same key": ({}, {}, True),
    "failed": ({"state": "failed"}, {}, True),
    "aborted": ({"state": "aborted"}, {}, True),
    "cancelled": ({"state": "cancelled"}, {}, False),
    "queued": ({"state": "queued"}, {}, False),
    "paused": ({"state": "paused"}, {}, False),
    "another type": ({"task_type": "local"}, {}, False),
    "another identifier": ({"task_identifier": "43"}, {}, False),
    "another repository": ({"repository": "other"}, {}, False),
    "another user": ({"user": "bob"}, {}, False),
    "another owner": ({"owner": "eve"}, {}, False),
    "in other letters": ({"user": "Ann"}, {}, False),
    "type left out by both": ({"task_type": "local"}, {"task_type": "local"}, True),
    "no identifier": ({"task_identifier": None}, {"task_identifier": None}, False),
    "an empty identifier": ({"task_identifier": ""}, {"task_identifier": ""}, False),
    "no repository": ({"repository": None}, {"repository": None}, False),
    "no user": ({"user": None}, {"user": None}, False),
    "an empty repository, as given": ({"repository": ""}, {"repository": ""}, True),
    "repository only before": ({}, {"repository": None}, False),
}


@pytest.mark.parametrize("case", LOOKUPS)
def test_the_predecessor_is_found_by_its_key(case: str, stage: Stage) -> None:
    before, given, found = LOOKUPS[case]
    row = {"state": "succeeded"} | KEY | before
    earlier = factories.make_job(stage.doors.db, **row)
    assert stage.row(follow(stage, **given))["inherits_from"] == (earlier if found else None)


def test_the_newest_one_is_followed(stage: Stage) -> None:
    db = stage.doors.db
    ids = [factories.make_job(db, "succeeded", id=f"job-{number}", **KEY) for number in (1, 3, 2)]
    factories.make_job(db, "cancelled", id="job-4", **KEY)
    factories.make_job(db, "running", id="job-5", **KEY)
    assert stage.row(follow(stage))["inherits_from"] == ids[1]


@pytest.mark.parametrize("state", ["succeeded", "failed", "aborted", "cancelled"])
def test_any_ended_job_may_be_named(state: str, stage: Stage) -> None:
    """Also a cancelled one, also of another key, and before the one that the key would find."""
    factories.make_job(stage.doors.db, "succeeded", **KEY)
    named = factories.make_job(stage.doors.db, state)
    assert stage.row(follow(stage, inherits_from=named))["inherits_from"] == named


@pytest.mark.parametrize(
    "changes", [{"owner": "eve"}, {"state": "running"}, {"state": "queued"}, {"state": "waiting_human"}]
)
def test_no_other_job_may_be_named(changes: dict[str, Any], stage: Stage) -> None:
    """The answer is the same for a foreign job, one that has not ended, and none at all."""
    named = factories.make_job(stage.doors.db, **({"state": "succeeded"} | changes))
    said = set()
    for job_id in (named, "no-such-job"):
        with pytest.raises(PredecessorNotFound) as refused:
            follow(stage, inherits_from=job_id)
        assert refused.value.exit_code == JobNotFound.exit_code
        said.add(str(refused.value).replace(job_id, "JOB"))
    assert len(said) == 1
    assert not list(stage.folder.glob("jobs/*")), "no workspace is left"


def test_the_same_key_finds_its_job_though_the_predecessor_goes_on(stage: Stage) -> None:
    db = stage.doors.db
    named = factories.make_job(db, "failed")
    asked = SubmitRequest("Go on.", inherits_from=named, idempotency_key="once")
    first = submit(stage.doors, asked, "local")
    stage.retry(named)
    again = submit(stage.doors, asked, "local")
    assert (again.created, again.job.id) == (False, first.job.id)


def test_turned_off(stage: Stage) -> None:
    """Nothing is looked up; naming a job is an error that says why."""
    stage.reopen(context={"inheritance": {"enabled": False}})
    named = factories.make_job(stage.doors.db, "succeeded", **KEY)
    job_id = follow(stage)
    assert stage.row(job_id)["inherits_from"] is None
    assert list_comments(stage.doors.db, job_id) == []
    with pytest.raises(UsageError, match="turned off"):
        follow(stage, inherits_from=named)


def test_a_running_predecessor_is_not_followed(stage: Stage) -> None:
    """Two jobs about one thing at once: the second follows the newest that has ended, or none."""
    earlier = factories.make_job(stage.doors.db, "succeeded", **KEY)
    stage.tell(lambda _: _check(stage, earlier))
    running = follow(stage)
    stage.run()
    assert stage.job(running).state == State.SUCCEEDED


def _check(stage: Stage, earlier: str) -> Answer:
    second = follow(stage, available_at=stage.doors.db.clock() + 3600)
    assert stage.row(second)["inherits_from"] == earlier
    return COMPLETE


# --- what it reads ---


def test_it_begins_with_the_summary_and_the_plans(stage: Stage) -> None:
    plan = calls(call("plan", plan_type="design", plan_content="First the stars, then the moons."))
    earlier = ended(stage, plan, COMPLETE, instruction="Count the stars.")
    write_summary(stage)
    job_id = follow(stage, instruction="Now the moons.")

    told = first_head(stage, job_id)

    row = stage.row(earlier)
    assert told.startswith("## What an earlier job left")
    for text in (
        f"continues job {earlier}: succeeded, completed at ",
        "Go on from where it stopped",
        f"### Its summary\n{TEXT}",
        "### Its plans\n- 20",
        "[design] First the stars, then the moons.",
    ):
        assert text in told, text
    assert told.endswith("## Task\nNow the moons.")
    [inherited] = stage.events(job_id, "inherited")
    assert inherited == {
        "predecessor": earlier, "state": row["state"], "found": "thread", "from": "summary",
    }  # fmt: skip
    assert stage.job(job_id).inherits_from == earlier


def test_every_movement_begins_with_it_as_it_was(stage: Stage) -> None:
    """Byte for byte, though the earlier job goes on and another summary takes the place of the first."""
    done = [{"condition": "x", "next": "COMPLETE"}]
    stage.piece(
        "two", {"name": "a", "rules": [{"condition": "x", "next": "b"}]}, {"name": "b", "rules": done}
    )
    earlier = ended(stage, go("ABORT", "no use"))
    write_summary(stage)
    job_id = follow(stage, piece="two")
    heads: list[str] = []

    def first(request: ChatRequest) -> Answer:
        heads.append(head(request))
        stage.retry(earlier)
        return go("b")

    def second(request: ChatRequest) -> Answer:
        heads.append(head(request))
        return COMPLETE

    stage.tell(first, second)
    stage.run()
    assert stage.job(job_id).state == State.SUCCEEDED
    blocks = [told.partition("\n\n## Now")[0].partition("\n\n## Lessons")[0] for told in heads]
    assert TEXT in blocks[0]
    assert blocks[0] == blocks[1]


def test_a_japanese_job_has_japanese_headings(stage: Stage) -> None:
    earlier = summarised(stage)
    told = first_head(stage, follow(stage, instruction="次は月を数えてください。"))
    assert told.startswith("## 前のジョブからの引き継ぎ")
    assert "### 前のジョブの要約" in told
    assert f"このジョブはジョブ {earlier} を引き継ぎます" in told


def test_without_a_summary_its_last_messages_serve(stage: Stage) -> None:
    earlier = ended(stage, calls(call("Act", n=3)), go("ABORT", "the moon is missing"))
    write_summary(stage, NO_KEY)
    job_id = follow(stage)
    told = first_head(stage, job_id)
    for text in ("### Its last messages", "→ Act", "acted 3", "the moon is missing"):
        assert text in told, text
    assert stage.events(job_id, "inherited")[0]["from"] == "last_messages"
    assert stage.row(earlier)["summary_state"] == "failed"


def test_of_a_job_that_was_deleted_only_that_is_told(stage: Stage) -> None:
    earlier = summarised(stage)
    job_id = follow(stage)
    with stage.doors.db.write() as conn:
        conn.execute(jobs.delete().where(jobs.c.id == earlier))
    assert "It was deleted" in first_head(stage, job_id)


def test_a_long_summary_and_many_plans_are_cut_with_a_note(stage: Stage) -> None:
    """At most max_summary_tokens in all, the note included; of the plans the newest stay."""
    stage.reopen(context_window=100_000, context={"inheritance": {"max_summary_tokens": 600}})
    plans = [
        calls(call("plan", plan_type="step", plan_content=f"number {n}: " + "look at the sky " * 8))
        for n in range(20)
    ]
    ended(stage, *plans, COMPLETE)
    write_summary(stage, Reply("The beginning. " + "One more star was found. " * 500))
    job_id = follow(stage)
    first_head(stage, job_id)
    block = next(m for m in stage.messages(job_id) if (m.extra or {}).get("block") == "inheritance")
    text = block.content or ""
    assert estimate_tokens(text) <= 600
    assert estimate_tokens(text) > 500
    assert "The beginning." in text
    assert "[… cut here: more than 600 tokens]" in text
    assert "number 19" in text
    assert "number 0:" not in text
    assert "earlier plans are left out]" in text


def test_a_small_window_gets_less(stage: Stage) -> None:
    stage.reopen(context_window=8000)
    ended(stage)
    write_summary(stage, Reply("star " * 900))
    stage.reopen(context_window=2500)
    job_id = follow(stage)
    stage.tell(COMPLETE)
    stage.run()
    block = next(m for m in stage.messages(job_id) if (m.extra or {}).get("block") == "inheritance")
    assert block.tokens <= 1000


def test_a_chain_of_ten_does_not_grow(stage: Stage) -> None:
    """A summariser that echoes all it is told: each block, and each summary, is bounded."""
    sizes: list[int] = []
    job_id = ""

    def echo(request: ChatRequest) -> Answer:
        return Reply(str(request.messages[1]["content"]))

    summarised(stage, echo)
    for number in range(10):
        job_id = follow(stage, instruction=f"Part {number}.")
        first_head(stage, job_id)
        write_summary(stage, *[echo] * 6)
        block = next(m for m in stage.messages(job_id) if (m.extra or {}).get("block") == "inheritance")
        sizes.append(block.tokens)
        assert stage.row(job_id)["summary_state"] == "done"
    assert max(sizes) <= 4000
    assert max(sizes[5:]) <= max(sizes[:5]) * 1.1
    assert stage.row(job_id)["total_summaries"] == 1


def test_jobs_that_never_took_a_step_pass_on_what_came_before(stage: Stage) -> None:
    """One that failed at once must not make the thread forget."""
    summarised(stage)
    job_id = ""
    for _ in range(2):
        job_id = follow(stage)
        stage.tell(Reply(refusal="never"))
        stage.run()
        assert stage.row(job_id)["summary_state"] == "none"
    told = first_head(stage, follow(stage))
    assert f"continues job {job_id}: failed" in told
    assert TEXT in told


def test_a_circle_ends(stage: Stage) -> None:
    """No public call makes one; an import may."""
    db = stage.doors.db
    one, two = factories.make_job(db, "failed"), factories.make_job(db, "failed")
    factories.set_columns(db, one, inherits_from=two)
    factories.set_columns(db, two, inherits_from=one)
    assert MOST_HOPS < 50
    assert "## What an earlier job left" in first_head(stage, stage.submit(inherits_from=one))


# --- the comment ---


def test_the_system_names_the_predecessor_in_a_comment(stage: Stage) -> None:
    earlier = summarised(stage)
    job_id = follow(stage)
    [note] = list_comments(stage.doors.db, job_id)
    assert (note.number, note.author) == (1, "system")
    assert f"continues from job {earlier}: succeeded, completed at 20" in note.text
    assert stage.row(job_id)["inbox_total"] == 1
    told = first_head(stage, job_id)
    assert told.count("This job continues from job") == 1
    assert stage.row(job_id)["inbox_seen"] >= 1


def test_the_comment_comes_once_though_the_first_run_dies(stage: Stage) -> None:
    summarised(stage)
    job_id = follow(stage)

    def die(_context: Any, _arguments: Any) -> str:
        raise PowerCut

    stage.acts[1].effect = die
    stage.tell(calls(call("Again")))
    stage.crash()
    stage.acts[1].effect = None
    stage.sweep()
    told: list[str] = []

    def end(request: ChatRequest) -> Answer:
        told.append(head(request))
        return COMPLETE

    stage.tell(end)
    stage.run()
    assert stage.job(job_id).state == State.SUCCEEDED
    assert told[0].count("This job continues from job") == 1
    notes = [c for c in list_comments(stage.doors.db, job_id) if c.author == "system"]
    assert len(notes) == 1


def test_the_thread_shows_peoples_words_not_the_systems_notes_to_other_jobs(stage: Stage) -> None:
    first = summarised(stage)
    second = follow(stage)
    stage.comment(second, "Mind the comets.")
    first_head(stage, second)
    write_summary(stage)
    told = first_head(stage, follow(stage))
    assert "Mind the comets." in told
    assert told.count("This job continues from job") == 1
    assert f"from job {first}" not in told


def test_the_chain_of_named_jobs_is_one_thread(stage: Stage) -> None:
    stage.tell(COMPLETE)
    first = stage.submit()
    stage.comment(first, "Use metres.")
    stage.run()
    stage.tell(COMPLETE)
    second = stage.submit(inherits_from=first)
    pass_time(stage, second, LONGEST_WAIT)
    stage.sweep()
    stage.run()
    third = stage.submit(inherits_from=second)
    pass_time(stage, third, LONGEST_WAIT)
    stage.sweep()
    assert "Use metres." in first_head(stage, third)


# --- waiting for the summary ---


def test_it_waits_for_a_pending_summary_and_is_woken_by_it(stage: Stage) -> None:
    earlier = ended(stage)
    job_id = follow(stage)
    view = stage.job(job_id)
    assert (view.state, view.reason) == (State.INHERITING, Reason.INHERITING)
    assert earlier in str(view.reason_text)
    assert "last messages" in str(view.next_action)
    assert stage.events(job_id, "inheriting") == [
        {"predecessor": earlier, "state": "succeeded", "found": "thread"}
    ]
    assert stage.run() is None  # nobody can claim it
    stage.sweep()
    assert stage.job(job_id).state == State.INHERITING

    write_summary(stage)

    assert stage.job(job_id).state == State.QUEUED
    assert stage.events(job_id, "inherited") == [{"predecessor": earlier, "from": "summary"}]
    assert TEXT in first_head(stage, job_id)


def test_two_followers_at_once_are_both_woken(stage: Stage) -> None:
    ended(stage)
    followers = [follow(stage), follow(stage)]
    write_summary(stage)
    for job_id in followers:
        assert TEXT in first_head(stage, job_id)


def test_after_two_minutes_the_last_messages_serve(stage: Stage) -> None:
    ended(stage, calls(call("Act", n=5)), COMPLETE)
    job_id = follow(stage)
    pass_time(stage, job_id, LONGEST_WAIT - 30)
    stage.sweep()
    assert stage.job(job_id).state == State.INHERITING
    pass_time(stage, job_id, 30)
    stage.sweep()
    assert stage.job(job_id).state == State.QUEUED
    assert stage.events(job_id, "inherited")[0]["from"] == "last_messages"
    assert "acted 5" in first_head(stage, job_id)


def test_a_summary_that_fails_for_good_lets_it_go_on_at_once(stage: Stage) -> None:
    ended(stage)
    job_id = follow(stage)
    write_summary(stage, NO_KEY)
    assert stage.job(job_id).state == State.QUEUED
    assert "all is done" in first_head(stage, job_id)


def test_a_summary_that_is_tried_again_is_still_waited_for(stage: Stage) -> None:
    earlier = ended(stage)
    job_id = follow(stage)
    write_summary(stage, HttpFailure(503, {"error": {"message": "overloaded"}}))
    stage.sweep()
    assert stage.job(job_id).state == State.INHERITING
    make_summary_due(stage, earlier)
    write_summary(stage)
    assert TEXT in first_head(stage, job_id)


def test_a_retry_of_the_predecessor_lets_it_go_on(stage: Stage) -> None:
    earlier = ended(stage, go("ABORT", "no use"))
    job_id = follow(stage)
    stage.retry(earlier)
    assert stage.job(job_id).state == State.QUEUED
    assert stage.events(job_id, "inherited")[0]["from"] == "last_messages"


def test_the_sweep_moves_on_whom_a_dead_writer_left(stage: Stage) -> None:
    """The summary was committed, its writer died before it woke those who wait."""
    earlier = ended(stage)
    job_id = follow(stage)
    factories.set_columns(stage.doors.db, earlier, summary_state="failed")
    stage.sweep()
    assert stage.job(job_id).state == State.QUEUED
    stage.sweep()
    assert len(stage.events(job_id, "inherited")) == 1


def test_pause_and_resume_while_it_waits(stage: Stage) -> None:
    ended(stage)
    job_id = follow(stage)
    assert stage.pause(job_id).state == State.PAUSED
    assert stage.resume(job_id).state == State.INHERITING
    assert stage.job(job_id).reason == Reason.INHERITING
    stage.pause(job_id)
    write_summary(stage)
    stage.sweep()
    assert stage.job(job_id).state == State.PAUSED
    assert stage.resume(job_id).state == State.QUEUED
    assert TEXT in first_head(stage, job_id)


def test_cancel_while_it_waits(stage: Stage) -> None:
    ended(stage)
    job_id = follow(stage)
    stage.cancel(job_id)
    write_summary(stage)
    stage.sweep()
    view = stage.job(job_id)
    assert (view.state, view.summary_state) == (State.CANCELLED, "none")
    with pytest.raises(IllegalTransition):
        stage.resume(job_id)
    assert stage.retry(job_id).state == State.QUEUED
    assert TEXT in first_head(stage, job_id)


def test_a_schedule_is_kept(stage: Stage) -> None:
    ended(stage)
    due = stage.doors.db.clock() + 3600
    job_id = follow(stage, available_at=due)
    assert stage.job(job_id).state == State.INHERITING
    write_summary(stage)
    view = stage.job(job_id)
    assert (view.state, view.reason, view.available_at) == (State.QUEUED, Reason.SCHEDULED, due)
    assert stage.run() is None


def test_subtasks_inherit_nothing(stage: Stage) -> None:
    """A subtask is a part of its parent's work, not a later job about the same thing."""
    summarised(stage)
    rules = [{"condition": "x", "next": step} for step in ("WAIT_SUBTASKS", "COMPLETE")]
    stage.piece("parent", {"name": "spawn", "rules": rules})
    stage.tell(calls(call("spawn_subtask", instruction="Count one.")), go("WAIT_SUBTASKS"))
    parent = follow(stage, piece="parent")
    stage.run()
    assert stage.job(parent).inherits_from is not None
    [child] = list_children(stage.doors, parent)
    assert child.inherits_from is None
    assert list_comments(stage.doors.db, child.id) == []
