"""A worker dies by SIGKILL at every named point; another one finishes its job, and nothing is lost or repeated."""

from __future__ import annotations

import json

import pytest

from jobs.states import State
from storage.crashpoints import CrashPoint
from tests.archive.test_crashes import EXPORT_POINTS, IMPORT_POINTS, REMOVE_POINTS
from tests.crash.bench import CrashBench, died_by_kill, shape
from tests.crash.test_compaction import CONTEXT_POINTS, TRIM_POINTS
from tests.crash.test_hooks import HOOK_POINTS
from tests.crash.test_summaries import FINAL_POINTS
from tests.subtasks.test_crashes import SUBTASK_POINTS
from worker.agent import INTERRUPTED

# Where the first worker dies, as `point:n`, and what the second finds: how many model calls are repeated (a reply
# that was not yet committed is asked for again, once), whether the unrepeatable command was left open, and how
# often it may have taken effect.
AGENT_POINTS = {
    "claim.committing": (0, False, 1),
    "claim.committed": (0, False, 1),
    "visit.committing": (0, False, 1),
    "visit.committed": (0, False, 1),
    "model.calling": (0, False, 1),
    "model.replied": (1, False, 1),
    "reply.committing": (1, False, 1),
    "reply.committed": (0, True, 0),
    "tool.starting": (0, True, 0),
    "tool.starting:2": (0, True, 0),
    "tool.ended": (0, True, 0),
    "tool.ended:2": (0, True, 1),
    "result.committing": (0, True, 0),
    "result.committing:2": (0, True, 1),
    "result.committed": (0, True, 0),
    "result.committed:2": (0, False, 1),
    "gap.committing": (0, False, 1),
    "gap.committed": (0, False, 1),
    "transition.committing": (0, False, 1),
    "transition.committed": (0, False, 1),
    "end.committing": (0, False, 1),
    "end.committed": (0, False, 1),
    "end.committing:3": (0, False, 1),
    "end.committed:3": (0, False, 1),
    "publish.sending": (0, False, 1),
    "publish.sent": (0, False, 1),
}
SWEEP_POINTS = ("sweep.committing", "sweep.committed", "wake.committed")
SUBMITTER_POINTS = ("submit.committing", "submit.committed", "publish.sending", "publish.sent")
CONTROL_POINTS = ("control.committing", "control.committed")
ARCHIVE_POINTS = (*EXPORT_POINTS, *IMPORT_POINTS, *REMOVE_POINTS)

MODEL_CALLS = 6  # of an uncrashed run


def test_every_point_is_tested() -> None:
    """A new commit, publish or tool brings its crash point, and a crash point brings its test."""
    tested = {
        point.partition(":")[0]
        for point in (
            *AGENT_POINTS,
            *SWEEP_POINTS,
            *SUBMITTER_POINTS,
            *CONTROL_POINTS,
            *CONTEXT_POINTS,
            *TRIM_POINTS,
            *FINAL_POINTS,
            *HOOK_POINTS,
            *SUBTASK_POINTS,
            *ARCHIVE_POINTS,
        )
    }
    assert tested == {str(point) for point in CrashPoint}


@pytest.mark.parametrize("point", AGENT_POINTS)
def test_a_worker_dies_at(point: str, bench: CrashBench) -> None:
    """Killed in the middle of a batch and everywhere else: the transcript is an uncrashed run's, but for what a
    call of unknown outcome is answered with."""
    repeated, interrupted, effects = AGENT_POINTS[point]
    job_id = bench.submit()
    died_by_kill(bench.worker(crash_at=point))
    bench.worker()

    view = bench.wait_ended(job_id)

    assert (view.state, view.result) == (State.SUCCEEDED, "all done")
    bench.assert_sound(job_id)
    assert bench.endpoint.calls(job_id + "/*") == MODEL_CALLS + repeated
    assert bench.effects(job_id) == effects
    assert shape(bench.messages(job_id)) == uncrashed_shape(bench, interrupted=interrupted)


@pytest.mark.parametrize("point", SWEEP_POINTS)
def test_a_sweeper_dies_at(point: str, bench: CrashBench) -> None:
    """The worker that mends a dead one's job dies of it too: a third one mends what both left."""
    job_id = bench.submit()
    died_by_kill(bench.worker(crash_at="model.calling"))
    died_by_kill(bench.worker(crash_at=point))
    bench.worker()

    assert bench.wait_ended(job_id).state == State.SUCCEEDED
    bench.assert_sound(job_id)
    assert shape(bench.messages(job_id)) == uncrashed_shape(bench, interrupted=False)


@pytest.mark.parametrize("point", SUBMITTER_POINTS)
def test_a_submitter_dies_at(point: str, bench: CrashBench) -> None:
    """Before its commit there is no job; after it the job runs. Submitting again with the key makes no second one."""
    bench.write_piece()
    bench.worker().wait_for_log("is ready")  # and with it the broker
    submit = ("submit", "Do it.", "--piece", "crash", "--key", "once", "--json")
    died_by_kill(bench.commands.run(*submit, env=bench.env(SOSTENUTO_CRASH_POINT=point)))
    before = bench.job_ids()
    assert len(before) == (0 if point == "submit.committing" else 1)

    again = bench.commands.run(*submit, env=bench.env())

    assert again.wait() == 0, again.log()
    job_id = json.loads(again.log())["job"]["id"]
    assert bench.job_ids() == [job_id]
    assert bench.wait_ended(job_id).state == State.SUCCEEDED


@pytest.mark.parametrize("point", CONTROL_POINTS)
def test_a_commander_dies_at(point: str, bench: CrashBench) -> None:
    """A comment, then a cancel, whose command dies: each is there whole or not at all."""
    job_id = bench.submit()
    committed = point == "control.committed"
    armed = bench.env(SOSTENUTO_CRASH_POINT=point)

    died_by_kill(bench.commands.run("comment", job_id, "look here", env=armed))

    assert bench.view(job_id).unread_comments == int(committed)
    died_by_kill(bench.commands.run("cancel", job_id, env=armed))
    assert bench.view(job_id).state == (State.CANCELLED if committed else State.QUEUED)
    bench.assert_sound(job_id)


def uncrashed_shape(bench: CrashBench, *, interrupted: bool) -> list[tuple[str, str | None, str]]:
    """What the workers that are still alive leave of a job that nothing happens to."""
    job_id = bench.submit()
    assert bench.wait_ended(job_id).state == State.SUCCEEDED
    assert bench.effects(job_id) == 1
    lines = shape(bench.messages(job_id))
    bash = next(index for index, line in enumerate(lines) if line[:2] == ("tool", "Bash"))
    if interrupted:
        lines[bash] = ("tool", "Bash", INTERRUPTED)
    return lines
