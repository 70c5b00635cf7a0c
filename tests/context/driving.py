"""A job driven through both queues, and what an agent that fills its context says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from storage.records import Message
from storage.summaries import list_summaries
from storage.transcript import load_view
from tests.agent.stage import COMPLETE, Stage, call, calls
from tests.strict_endpoint import Answer, ChatRequest, Reply
from worker.context_run import run_context

WINDOW = 8000
LEAN = "lean"  # a piece with few tools, so that most of the window is the conversation's
Answering = Callable[[ChatRequest], Answer]


def small_window(
    stage: Stage, window: int = WINDOW, *, compression: dict[str, Any] | None = None, **more: Any
) -> None:
    """A model with a small window, known to the worker; the endpoint refuses what does not fit."""
    stage.endpoint.profile = type(stage.endpoint.profile)(window=window)
    changes: dict[str, Any] = {"context_window": window, "max_output_tokens": 500} | more
    stage.restart(**changes, context={"compression": compression or {}})
    lean(stage)


def lean(stage: Stage, **more: Any) -> str:
    """The piece LEAN: one movement that may act and keep todos."""
    rules = [{"condition": "done", "next": "COMPLETE"}]
    return stage.piece(LEAN, {"name": "work", "allowed_tools": ["Act", "todo_write"], "rules": rules} | more)


def fill(stage: Stage, tokens: int = 600) -> None:
    """Each call of Act returns so many tokens, all different."""
    stage.acts[0].effect = lambda _, given: f"result {given.get('n')} " + "word " * tokens


def is_summary(request: ChatRequest) -> bool:
    return "/compaction/" in request.label


def working(steps: int, *, summary: Answering | None = None, then: Answer = COMPLETE) -> Answering:
    """A mind that calls Act `steps` times in all, one call a step, and then ends; asked for a summary, it writes one."""
    made = 0

    def answer(request: ChatRequest) -> Answer:
        nonlocal made
        if is_summary(request):
            return summary(request) if summary else Reply(f"What was done before step {made}.")
        if made == steps:
            return then
        made += 1
        return calls(call("Act", n=made))

    return answer


def roomy(stage: Stage, **more: Any) -> None:
    """The stage of most compactions: a small window, four messages kept, some 300 tokens a step."""
    small_window(stage, compression={"keep_recent": 4}, **more)
    fill(stage, 300)


def full(stage: Stage, mind: Answering | None = None) -> str:
    """A job whose agent has filled its context: it waits to be summarised. Returns its id."""
    roomy(stage)
    stage.endpoint.mind = mind or working(22)
    job_id = stage.submit(piece=LEAN)
    stage.run()
    assert stage.job(job_id).state == "compressing"
    return job_id


def drive(stage: Stage, job_id: str, rounds: int = 150) -> str:
    """Runs both queues until the job neither runs nor waits for one; returns its state."""
    state = ""
    for _ in range(rounds):
        state = stage.job(job_id).state
        if state == "queued":
            stage.make_due(job_id)
            stage.run()
        elif state == "compressing":
            stage.make_due(job_id)
            run_context(stage.process, None)
        else:
            return state
    raise AssertionError(f"the job is still {state} after {rounds} runs")


def play(stage: Stage, mind: Answering, **submitted: Any) -> str:
    """Submits a job and drives it with this mind, as far as it goes; returns its id."""

    def answering(request: ChatRequest) -> Answer:
        stage.busy_calls.append(stage.process.db.busy_connections)
        return mind(request)

    stage.endpoint.mind = answering
    job_id = stage.submit(**({"piece": LEAN} | submitted))
    drive(stage, job_id)
    return job_id


def agent_requests(stage: Stage) -> list[ChatRequest]:
    return [request for request in stage.endpoint.requests if not is_summary(request)]


def summary_requests(stage: Stage) -> list[ChatRequest]:
    return [request for request in stage.endpoint.requests if is_summary(request)]


def view(stage: Stage, job_id: str) -> list[Message]:
    row = stage.row(job_id)
    return load_view(stage.doors.db, job_id, row["visit_seq"], row["tail_seq"], row["summary_seq"])


def summaries(stage: Stage, job_id: str) -> list[str]:
    return [found.content for found in list_summaries(stage.doors.db, job_id)]
