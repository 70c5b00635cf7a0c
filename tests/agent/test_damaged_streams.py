"""Whole jobs whose model answers with damaged streams: whatever comes, the job's state explains itself."""

from __future__ import annotations

import json

import pytest

from jobs.states import TERMINAL
from tests.agent.stage import COMPLETE, Stage
from tests.model.mutations import mutations
from tests.strict_endpoint import Answer, ChatRequest, Raw

JOBS = 25
DAMAGED_CALLS = 3  # of each job, before the model is well again


@pytest.mark.parametrize("seed", [1])
def test_jobs_over_damaged_streams_come_to_an_end_that_is_explained(stage: Stage, seed: int) -> None:
    """Nothing runs but calls of committed replies, each once; every request after the damage keeps the rules."""
    bodies = iter(mutations(JOBS * DAMAGED_CALLS, seed))
    damaged: dict[str, int] = {}

    def mind(request: ChatRequest) -> Answer:
        job_id = request.label.partition("/")[0]
        damaged[job_id] = damaged.get(job_id, 0) + 1
        return Raw(next(bodies)) if damaged[job_id] <= DAMAGED_CALLS else COMPLETE

    for _ in range(JOBS):
        before = [len(act.runs) for act in stage.acts]
        stage.endpoint.mind = mind
        job_id = stage.submit()
        job = stage.job(job_id)
        for _ in range(20):
            stage.run()
            job = stage.job(job_id)
            if job.state in TERMINAL:
                break
            assert job.state == "queued", job
            assert job.reason_text
            stage.make_due(job_id)
        assert job.state in TERMINAL, job
        assert job.reason_text
        assert job.next_action
        committed = [
            call
            for message in stage.messages(job_id)
            for call in message.tool_calls or ()
            if call["name"] in ("Act", "Again") and not call.get("broken")
        ]
        ran = [len(act.runs) - count for act, count in zip(stage.acts, before, strict=True)]
        assert sum(ran) <= len(committed)
        for call in committed:
            assert isinstance(json.loads(call["arguments"]), dict)
        assert set(stage.call_states(job_id)) <= {"done"}
