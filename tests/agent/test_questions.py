"""Questions with choices, deadlines and rebuilt contexts."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import sqlalchemy as sa

from jobs import comments
from jobs.errors import IllegalTransition
from jobs.questions import chosen_answer, question_of
from storage.comments import SYSTEM, list_comments
from storage.engine import wall_clock
from storage.jobs import job_tx, overdue_questions
from storage.models import jobs
from tests.agent.stage import COMPLETE, PowerCut, Stage, call, calls, go

CHOICES = ["red", "dark blue", "2"]
RULES = [{"condition": "unsure", "next": "ASK"}, {"condition": "done", "next": "COMPLETE"}]


def transitions(stage: Stage, job_id: str) -> list[str]:
    return [m.content or "" for m in stage.messages(job_id) if m.tool_name == "transition"]


def asked(stage: Stage, ask: dict[str, Any], *before: Any, **question: Any) -> str:
    """A job whose movement asks in this way, waiting for the answer."""
    piece = stage.piece("asking", {"name": "work", "ask": ask, "rules": RULES})
    job_id = stage.play(*before, go("ASK", "Which colour?", **question), piece=piece)
    assert stage.job(job_id).state == "waiting_human"
    return job_id


def end_deadline(stage: Stage, job_id: str) -> None:
    """Lets the time for an answer pass."""
    with stage.doors.db.write() as conn:
        conn.execute(sa.update(jobs).where(jobs.c.id == job_id).values(answer_due_at=wall_clock() - 1))


DEADLINE = {"deadline": "2h", "default_answer": "Take grey."}


@pytest.mark.parametrize(
    ("reply", "meant"),
    [
        ("2", "2"),  # the text of a choice goes before its number
        ("1", "red"),
        (" 3. ", "2"),
        ("DARK  blue", "DARK  blue"),
        (" Dark Blue\n", "dark blue"),
        ("4", "4"),
        ("0", "0"),
        ("-1", "-1"),
        ("²", "²"),
        ("red, or rather pink", "red, or rather pink"),
    ],
)
def test_which_choice_a_reply_means(reply: str, meant: str) -> None:
    """An agent that offered "dark blue" must not have to guess what "2" or "Dark Blue" meant."""
    assert chosen_answer(question_of("Which?", CHOICES, None, None), reply) == meant
    assert chosen_answer(question_of("Which?", [], None, None), reply) == reply


def test_choices_are_stored_and_a_number_reaches_the_agent_as_its_text(stage: Stage) -> None:
    job_id = asked(stage, {}, choices=[" red ", "dark blue", "red", " "])
    assert stage.job(job_id).pending_question == {
        "question": "Which colour?",
        "choices": ["red", "dark blue"],
    }
    stage.reply(job_id, "2")
    stage.tell(COMPLETE)
    stage.run()
    assert transitions(stage, job_id)[0] == "ann answers: dark blue"


def test_choices_as_a_json_string_and_choices_that_are_none(stage: Stage) -> None:
    """Models send arrays as strings; what is no list of texts is refused, and the model told so."""
    job_id = stage.play(
        calls(call("transition", next_step="ASK", summary="Which?", choices=[1])),
        calls(call("transition", next_step="ASK", summary="Which?", choices='["a", "b"]')),
    )
    assert stage.job(job_id).pending_question == {"question": "Which?", "choices": ["a", "b"]}
    assert transitions(stage, job_id)[0].startswith("Error: transition was not done: argument 'choices[0]'")


def test_only_a_movement_that_may_ask_is_offered_choices(stage: Stage) -> None:
    piece = stage.piece("mute", {"name": "work", "rules": [{"condition": "done", "next": "COMPLETE"}]})
    stage.play(COMPLETE, piece=piece)
    [tool] = [
        t["function"]
        for t in stage.endpoint.requests[-1].body["tools"]
        if t["function"]["name"] == "transition"
    ]
    assert "choices" not in tool["parameters"]["properties"]


def test_a_deadline_is_told_and_its_default_answers_once(stage: Stage) -> None:
    job_id = asked(stage, DEADLINE)
    job = stage.job(job_id)
    assert job.pending_question is not None
    assert job.pending_question["until"] > stage.doors.db.clock() + 7000
    shown = job.as_dict()["pending_question"]["until"]
    assert job.reason_text == f"asks a person, until {shown}: Which colour?"
    assert "at " + shown + " it goes on by itself with: Take grey." in (job.next_action or "")
    stage.sweep()
    assert stage.job(job_id).state == "waiting_human"

    end_deadline(stage, job_id)
    stage.sweep()
    stage.sweep()

    [_, answer] = list_comments(stage.doors.db, job_id)
    assert (answer.author, answer.text) == ("system", "Take grey.")
    job = stage.job(job_id)
    assert (job.state, job.reason, job.pending_question) == ("queued", "answered", None)
    assert stage.row(job_id)["answer_due_at"] is None
    with pytest.raises(IllegalTransition):
        stage.reply(job_id, "blue")
    stage.tell(COMPLETE)
    stage.run()
    assert transitions(stage, job_id)[0] == "system answers: Take grey."


@pytest.mark.parametrize("way", ["reply", "comment"])
def test_a_person_and_the_deadline_at_the_same_instant(stage: Stage, way: str) -> None:
    """Whoever is second must change nothing: one answer, one wake-up, whatever the order."""
    winners = set()
    for _ in range(6):
        job_id = asked(stage, DEADLINE)
        end_deadline(stage, job_id)
        start = threading.Barrier(3)
        done: list[object] = []

        def person(job_id: str = job_id, start: threading.Barrier = start, done: list[object] = done) -> None:
            start.wait()
            try:
                done.append(getattr(stage, way)(job_id, "blue"))
            except IllegalTransition as error:
                done.append(error)

        def system(job_id: str = job_id, start: threading.Barrier = start, done: list[object] = done) -> None:
            start.wait()
            done.append(comments.answer_by_default(stage.process.installation, job_id))

        threads = [threading.Thread(target=act) for act in (person, system, system)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(done) == 3
        answers = [c for c in list_comments(stage.doors.db, job_id) if c.answers_call is not None]
        [answer] = answers
        winners.add(answer.author)
        assert stage.row(job_id)["state"] == "queued"
        assert [e["number"] for e in stage.events(job_id, "reply")] == [answer.number]
        assert done.count(True) == (answer.author == "system")
        stage.cancel(job_id)
    assert winners <= {"ann", "system"}


@pytest.mark.parametrize("first", ["person", "system"])
def test_the_second_answer_waits_for_the_first_ones_lock(stage: Stage, first: str) -> None:
    """Forced: the first holds the job's row when the second begins; the second then finds the question answered."""
    job_id = asked(stage, DEADLINE)
    end_deadline(stage, job_id)
    outcome: list[object] = []

    def second() -> None:
        if first == "person":
            outcome.append(comments.answer_by_default(stage.process.installation, job_id))
        else:
            try:
                stage.reply(job_id, "blue")
            except IllegalTransition:
                outcome.append(False)

    thread = threading.Thread(target=second)
    with job_tx(stage.doors.db, job_id) as job:
        thread.start()
        author = "ann" if first == "person" else SYSTEM
        comments._store(job, "first", author, must_answer=True)
    thread.join(60)
    assert outcome == [False]
    [answer] = [c for c in list_comments(stage.doors.db, job_id) if c.answers_call is not None]
    assert answer.text == "first"


def test_a_deadline_does_not_end_a_pause(stage: Stage) -> None:
    """What a person stopped stays stopped; resumed, the question is answered by the next sweep."""
    job_id = asked(stage, DEADLINE)
    stage.pause(job_id)
    end_deadline(stage, job_id)
    stage.sweep()
    assert stage.job(job_id).state == "paused"
    assert stage.job(job_id).pending_question is not None
    job = stage.resume(job_id)
    assert job.state == "waiting_human"
    assert ", until " in (job.reason_text or "")
    stage.sweep()
    assert stage.job(job_id).state == "queued"


def test_cancelled_jobs_are_not_answered(stage: Stage) -> None:
    job_id = asked(stage, DEADLINE)
    stage.cancel(job_id)
    assert stage.row(job_id)["answer_due_at"] is None
    stage.sweep()
    assert stage.job(job_id).state == "cancelled"
    assert overdue_questions(stage.doors.db, 10) == []


def test_cancelled_while_the_question_was_written(stage: Stage) -> None:
    """A cancelled job must not look as if it waited for an answer."""
    ids: list[str] = []

    def ask(_request: Any) -> Any:
        stage.cancel(ids[0])
        return go("ASK", "Which?")

    stage.tell(ask)
    ids.append(stage.submit())
    stage.run()
    job = stage.job(ids[0])
    assert (job.state, job.pending_question) == ("cancelled", None)
    assert stage.row(ids[0])["pending_call"] is None


def test_a_rebuilt_context_begins_anew_with_question_and_answer(stage: Stage) -> None:
    job_id = asked(stage, {"resume": "rebuild"}, calls(call("Act", n=1)))
    stage.comment(job_id, "blue, please", "bob")
    stage.comment(job_id, "soon", "bob")
    stage.tell(COMPLETE)
    stage.run()
    last = stage.endpoint.requests[-1].messages
    assert [m["role"] for m in last] == ["system", "user"]
    head = str(last[1]["content"])
    assert "agent (question)" in head
    for text in ("Which colour?", "blue, please", "soon"):
        assert head.count(text) == 1
    assert "bob answers: blue, please" in stage.results(job_id)  # the transcript has it all
    assert stage.job(job_id).unread_comments == 0
    assert stage.gaps(job_id) == []
    assert len(stage.acts[0].runs) == 1
    assert stage.row(job_id)["visit"] == 2


def test_a_crash_before_the_rebuilt_visit_begins(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answered, and killed before the new head is committed: it is built once, and nothing is asked again."""
    job_id = asked(stage, {"resume": "rebuild"})
    stage.reply(job_id, "blue")

    def die(*_: object) -> None:
        raise PowerCut

    with monkeypatch.context() as patch:
        patch.setattr("worker.agent.begin_visit", die)
        stage.crash()
    stage.sweep()
    stage.restart()
    stage.tell(COMPLETE)
    stage.run()
    assert transitions(stage, job_id) == ["ann answers: blue", "Accepted. The job is complete."]
    assert str(stage.endpoint.requests[-1].messages[1]["content"]).count("blue") == 1


def test_questions_are_no_revisits(stage: Stage) -> None:
    """A movement that asks as often as it may be revisited is not stopped for it."""
    rules = [*RULES, {"condition": "again", "next": "work"}]
    movement = {"name": "work", "ask": {"resume": "rebuild"}, "rules": rules, "max_consecutive_revisits": 2}
    piece = stage.piece("asks", movement)
    job_id = stage.play(go("ASK", "One?"), piece=piece)
    stage.reply(job_id, "yes")
    stage.tell(go("ASK", "Two?"))
    stage.run()
    stage.reply(job_id, "yes")
    stage.tell(go("work"), COMPLETE)
    stage.run()
    assert stage.job(job_id).state == "succeeded"
