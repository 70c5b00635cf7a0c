"""A job far longer than its window: what it was told is still known at its end, and a late step costs what an early one did.

`python -m benchmarks.long_job` tells the same story in 5,000 steps.
"""

from __future__ import annotations

from benchmarks.database_work import DatabaseWork
from benchmarks.long_story import WORK, LongStory, result_of_work
from tests.agent.stage import Stage
from tests.context.driving import drive, is_summary, lean, small_window
from tests.strict_endpoint import Call, ChatRequest, Reply

STEPS, FACTS = 400, 24
RESULT_TOKENS = 130
MORE = 1.25  # times the database's work in the first part; a step that read all that came before would take 4 times as much


def test_nothing_is_lost_and_no_step_costs_more(stage: Stage) -> None:
    """Each summary forgets one fact; every fact is in the live context at the end, or one look-up brings it back."""
    small_window(stage, slice_steps=40)
    piece = lean(stage, allowed_tools=[WORK, "todo_write", "plan"])
    stage.acts[0].effect = lambda _, given: result_of_work(given["n"], RESULT_TOKENS)
    job_ids: list[str] = []
    story = LongStory(STEPS, FACTS, lambda text: _comment(stage, job_ids[0], text))
    part = (story.exam_at - 1) // 4
    work = DatabaseWork(stage.process.db)
    work_at: list[float] = []
    said = 0

    def mind(asked: ChatRequest) -> Reply:
        nonlocal said
        if not is_summary(asked):
            if said in (0, part, 3 * part, 4 * part):
                work_at.append(work.so_far())
            said += 1
        reply = story.answer(asked.label, asked.messages)
        return Reply(reply.text, tuple(Call(*call) for call in reply.calls))

    stage.endpoint.mind = mind
    job_ids.append(stage.submit(story.instruction, piece))

    assert drive(stage, job_ids[0]) == "succeeded"

    assert story.exam.lost == []
    assert len(story.exam.live) + len(story.exam.looked_up) == FACTS + len(story.instruction_facts)
    row = stage.row(job_ids[0])
    assert row["steps"] == STEPS
    assert row["total_summaries"] >= 10, row["total_summaries"]
    assert len(story.forgotten) == row["total_summaries"]
    assert len(story.exam.looked_up) >= 5, "the summaries forgot too little: nothing had to be looked up"
    first, last = work_at[1] - work_at[0], work_at[3] - work_at[2]
    assert last <= first * MORE, f"{first} {work.unit} became {last}"


def _comment(stage: Stage, job_id: str, text: str) -> None:
    stage.comment(job_id, text)
