"""What stories have found, each told plainly."""

from __future__ import annotations

import pytest

from tests.agent.stage import PowerCut, Stage, call, calls
from tests.context.driving import view
from worker.heartbeat import Heartbeat


@pytest.mark.parametrize(
    "who", ["pause", "cancel", "sweep fails", "sweep pauses", "sweep cancels", "given back"]
)
def test_the_size_at_rest_is_noted_whoever_brings_the_job_to_rest(stage: Stage, who: str) -> None:
    """Kind: a figure that only a run in order wrote. People, the sweep and a worker's last act end jobs, too."""
    stage.restart(slice_steps=1, max_attempts=1 if who == "sweep fails" else 5)
    job_id = stage.play(calls(call("Act", n=1)))
    assert stage.row(job_id)["final_message_count"] is None
    if who in ("pause", "cancel"):
        getattr(stage, who)(job_id)
    else:
        stage.acts[0].effect = _cut
        stage.tell(calls(call("Act", n=2)))
        if who == "given back":
            _give_back_a_paused_one(stage, job_id)
        else:
            stage.crash()
            if who != "sweep fails":
                (stage.pause if who == "sweep pauses" else stage.cancel)(job_id)
            stage.sweep()
    row = stage.row(job_id)
    assert row["state"] in ("paused", "cancelled", "failed")
    assert row["final_message_count"] == len(view(stage, job_id))
    assert row["final_token_count"] == row["context_tokens"] > 0


def _cut(*_: object) -> str:
    raise PowerCut


def _give_back_a_paused_one(stage: Stage, job_id: str) -> None:
    """A worker that had lost the database gives its run back, and a person wants the job paused."""
    stage.acts[0].effect = _cut
    with pytest.raises(PowerCut):
        stage.run()
    stage.pause(job_id)
    run = stage.runs(job_id)[-1]
    stage.process.give_back_later(run["id"])
    Heartbeat(stage.process).beat()
