"""The window with the next reply's room set aside: what would not fit is never sent."""

from __future__ import annotations

import pytest

from tests.agent.stage import COMPLETE, Stage, call
from tests.context.driving import fill, is_summary, play, small_window
from tests.strict_endpoint import Answer, ChatRequest, Reply

WINDOW = 8000
OUTPUT = WINDOW // 10


@pytest.mark.parametrize("compression", [True, False], ids=["compacted", "forced on"])
def test_a_prompt_and_a_reply_that_do_not_fit_together_are_not_sent(stage: Stage, compression: bool) -> None:
    """A reply that brings the prompt to 0.95 of the window, with a tenth of it wanted for the next: room comes first."""
    small_window(
        stage, WINDOW, compression={"enabled": compression, "keep_recent": 4}, max_output_tokens=OUTPUT
    )
    fill(stage, 600)
    acts = 0

    def mind(request: ChatRequest) -> Answer:
        nonlocal acts
        if is_summary(request):
            return Reply("What was done.")
        acts += 1
        if request.prompt_tokens > WINDOW * 0.6:
            told = "long " * int(WINDOW * 0.95 - request.prompt_tokens)
            return Reply(told, calls=(call("Act", n=acts),))
        return COMPLETE if acts > 20 else Reply(calls=(call("Act", n=acts),))

    job_id = play(stage, mind)
    job = stage.job(job_id)
    assert stage.endpoint.overflows == []
    sizes = [request.prompt_tokens for request in stage.endpoint.requests]
    assert max(sizes) + OUTPUT <= WINDOW
    assert all((request.body.get("max_tokens") or 0) <= OUTPUT for request in stage.endpoint.requests)
    biggest = max(m.tokens for m in stage.messages(job_id) if m.role == "assistant")
    assert biggest > WINDOW * 0.2  # else nothing ever came near the window
    if compression:
        assert job.state == "succeeded", job.error
    else:
        assert (job.state, job.reason) == ("aborted", "context_exhausted")
