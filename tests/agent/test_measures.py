"""What a whole job leaves in the measures: its calls, tools, tokens and steps, and how its runs ended."""

from __future__ import annotations

from storage.measures import Series, read_measures
from tests.agent.stage import COMPLETE, Stage, call, calls
from worker.heartbeat import Heartbeat


def test_a_job_is_counted_once(stage: Stage) -> None:
    job_id = stage.play(calls(call("Act", n=1), call("No such tool"), call("Read", path="missing")), COMPLETE)
    stage.process.measures.flush(stage.process.db, at_once=True)
    Heartbeat(stage.process).beat()  # tells nothing twice
    found = {
        (series.name, *(value for _, value in series.labels)): n
        for series, n in read_measures(stage.doors.db).items()
    }
    assert found["sostenuto_model_calls", "test-model", "answered"] == 2
    assert found["sostenuto_tool_calls", "Act", "done"] == 1
    assert found["sostenuto_tool_calls", "unknown", "error"] == 1
    assert found["sostenuto_tool_calls", "Read", "error"] == 1
    assert found["sostenuto_runs_ended", "agent", "succeeded", "completed"] == 1
    assert found["sostenuto_step_seconds_sum",] > 0
    assert sum(n for name, n in found.items() if name[0] == "sostenuto_step_seconds_bucket") == 2
    row = stage.row(job_id)
    spent = [found["sostenuto_tokens", kind] for kind in ("prompt", "completion")]
    assert spent == [row["prompt_tokens"], row["completion_tokens"]]
    assert Series("sostenuto_lost_leases") not in read_measures(stage.doors.db)
