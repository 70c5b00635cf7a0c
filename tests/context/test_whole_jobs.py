"""The invariants again, from end to end: jobs whose agent does arbitrary things, over both databases.

The endpoint refuses any request that breaks a rule; what is left to check is what the database holds afterwards.
"""

from __future__ import annotations

import io
from typing import Any

import pytest
from PIL import Image

from storage.models import images
from storage.records import Message
from storage.summaries import list_summaries
from tests.agent.stage import COMPLETE, PowerCut, Stage, call, calls, go
from tests.context.driving import LEAN, agent_requests, is_summary, lean, small_window, view
from tests.context.fuzzing import FUZZ
from tests.context.histories import ARGUMENTS, NAMES, RAW_IDS, Dice, History
from tests.factories import rows_of
from tests.strict_endpoint import Answer, Call, ChatRequest, HttpFailure, Reply
from worker.context_run import run_context
from worker.cutting import TURNS
from worker.flattening import flatten

STEPS = 40
INSTRUCTION = "Count the stars.\n\n## Task\nExactly. 正確に。 <system-reminder>"


class Whims:
    """An agent that does as the dice fall, and the world around it."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.dice = Dice(seed)
        self.job_id = ""
        self.replies = 0
        self.prose = 0

    def answer(self, request: ChatRequest) -> Answer:
        if self.dice.chance(0.03):
            return HttpFailure(500, {"error": {"message": "broken"}})
        if is_summary(request):
            return Reply() if self.dice.chance(0.1) else Reply(self.dice.text(long=0.3))
        self.replies += 1
        if self.dice.chance(0.15):
            self.stage.comment(self.job_id, self.dice.text(long=0.3))
        if self.replies > STEPS:
            return COMPLETE
        if self.dice.chance(0.05):
            return go("ASK", self.dice.text())
        if self.prose < 4 and self.dice.chance(0.05):
            self.prose += 1
            return Reply(self.dice.text())
        self.prose = 0
        return calls(*(self._call() for _ in range(self.dice.number(1, 4))))

    def _call(self) -> Call:
        if self.dice.chance(0.1):
            return call("ReadImage", path=self.dice.pick(("input/a.png", "input/b.png")))
        if self.dice.chance(0.1):
            todos = [{"id": n, "content": self.dice.text(), "status": "pending"} for n in range(3)]
            return call("todo_write", todos=todos)
        if self.dice.chance(0.2):
            return Call(self.dice.pick(NAMES), self.dice.pick(ARGUMENTS), id=self.dice.pick(RAW_IDS) or None)
        return Call("Act", {"n": self.replies}, id=self.dice.pick(RAW_IDS) or None)

    def act(self, *_: object) -> str:
        if self.dice.chance(0.02):
            raise PowerCut
        return self.dice.result() * self.dice.number(1, 3)

    def live(self) -> None:
        """Runs both queues, lets workers die and be replaced, answers questions, until the job is over."""
        stage, job_id = self.stage, self.job_id
        for _ in range(300):
            state = stage.job(job_id).state
            if state == "queued":
                stage.make_due(job_id)
                self._run_agent()
            elif state == "compressing":
                stage.make_due(job_id)
                run_context(stage.process, None)
            elif state == "waiting_human":
                stage.reply(job_id, self.dice.text())
            else:
                return
        raise AssertionError(f"the job is still {stage.job(job_id).state}")

    def _run_agent(self) -> None:
        try:
            self.stage.run()
        except PowerCut:
            self.stage.expire()
            self.stage.restart()
            self.stage.sweep()


def png(colour: str) -> bytes:
    """About as dear by our count as by the endpoint's."""
    buffer = io.BytesIO()
    Image.new("RGB", (800, 750), colour).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize("seed", range(FUZZ // 100 or 4))
def test_whatever_an_agent_does_its_context_holds(stage: Stage, seed: int) -> None:
    """Batches, odd ids, bad arguments, images, todos, prose, questions, comments, failing calls and dying workers."""
    small_window(stage, 9_000, compression={"keep_recent": 4}, slice_steps=12)
    rules = [{"condition": "done", "next": "COMPLETE"}, {"condition": "unclear", "next": "ASK"}]
    lean(stage, allowed_tools=["Act", "todo_write", "ReadImage"], rules=rules)
    whims = Whims(stage, seed)
    stage.endpoint.mind = whims.answer
    stage.acts[0].effect = whims.act
    whims.job_id = stage.submit(INSTRUCTION, piece=LEAN, files={"a.png": png("red"), "b.png": png("blue")})
    whims.live()

    view_of_the_job = stage.job(whims.job_id)
    assert view_of_the_job.state == "succeeded", view_of_the_job.reason_text
    stage.endpoint.assert_clean()
    holds_in_the_database(stage, whims.job_id)
    requests = [request for request in agent_requests(stage) if request.label.startswith(whims.job_id)]
    held_in_every_request(requests)


def holds_in_the_database(stage: Stage, job_id: str) -> None:
    """Each message is in the view or in exactly one summary; one result a call; every image that is named is kept."""
    row, rows = stage.row(job_id), stage.messages(job_id)
    summaries = list_summaries(stage.doors.db, job_id)
    assert summaries
    shown = {message.seq for message in view(stage, job_id) if message.kind in TURNS}
    for message in rows:
        covering = [s.number for s in summaries if s.first_seq <= message.seq <= s.last_seq]
        if message.kind in TURNS:
            assert len(covering) + (message.seq in shown) == 1, message.seq
    for summary in summaries:
        taken = [m for m in rows if summary.first_seq <= m.seq <= summary.last_seq and m.kind in TURNS]
        assert summary.message_count == len(taken)
        assert taken[-1].seq == summary.last_seq
        assert list(flatten(taken))
    history = History()
    history.rows, history.tail_seq, history.summary_seq = rows, row["tail_seq"], row["summary_seq"]
    assert history.view() == view(stage, job_id)
    assert [message.seq for message in rows] == list(range(1, row["total_messages"] + 1))
    made = [made["id"] for message in rows for made in message.tool_calls or ()]
    assert sorted(made) == sorted(message.tool_call_id or "" for message in rows if message.role == "tool")
    kept = {image["sha"] for image in rows_of(stage.doors.db, images, job_id)}
    assert {noted["sha"] for message in rows for noted in _images(message)} == kept


def _images(message: Message) -> list[dict[str, Any]]:
    return list((message.extra or {}).get("images", ()))


def held_in_every_request(requests: list[ChatRequest]) -> None:
    """Pinned byte for byte; the instruction last in the head; the kept part begins with a reply."""
    assert len({str(request.messages[0]) for request in requests}) == 1
    assert len({str(request.tools) for request in requests}) == 1
    for request in requests:
        head = request.messages[1]["content"]
        text = head if isinstance(head, str) else head[0]["text"]
        assert text.count(INSTRUCTION) == 1
        if "## Your work so far\nThis summary stands for" in text:
            assert text.endswith(INSTRUCTION)
            assert request.messages[2]["role"] == "assistant"
