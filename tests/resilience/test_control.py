"""Pause, cancel and retry from the command line at bad moments."""

from __future__ import annotations

import json

from jobs.states import State
from tests.resilience.bench import COMPLETE, Bench, bash, endless_command, running, story
from tests.strict_endpoint import Call, Reply
from tests.waiting import wait_until

ASK = Reply(calls=(Call("transition", {"next_step": "ASK", "summary": "Which colour?"}),))


def test_pause_during_a_model_call(bench: Bench) -> None:
    bench.endpoint.mind = story(bash("true"), COMPLETE)
    gate = bench.endpoint.hold()
    bench.start()
    job_id = bench.submit()
    gate.wait_held()
    told = json.loads(bench.cli("pause", job_id, "--json"))
    assert (told["state"], told["reason_text"]) == (State.RUNNING, "pausing after this step")
    assert "pausing after this step" in bench.cli("show", job_id)
    gate.release()
    wait_until(lambda: bench.view(job_id).state == State.PAUSED, 60, "it pauses")
    bench.cli("resume", job_id)
    assert bench.wait_ended(job_id).state == State.SUCCEEDED
    assert bench.endpoint.calls(job_id + "/*") == 2
    bench.assert_sound(job_id)


def test_cancel_during_a_model_call(bench: Bench) -> None:
    bench.endpoint.mind = story(COMPLETE)
    gate = bench.endpoint.hold()
    bench.start()
    job_id = bench.submit()
    gate.wait_held()
    bench.cli("cancel", job_id)
    bench.endpoint.wait_aborted(1, job_id + "/*")
    assert bench.wait_ended(job_id).state == State.CANCELLED
    gate.release()
    bench.cli("retry", job_id)
    wait_until(lambda: bench.view(job_id).state == State.SUCCEEDED, 60, "the retry goes on")
    bench.assert_sound(job_id)


def test_cancel_and_pause_during_a_command(sqlite_bench: Bench) -> None:
    """A cancel kills the command; a pause waits for it. A retry tells the model that the outcome is unknown."""
    bench = sqlite_bench
    command, words = endless_command()
    bench.endpoint.mind = story(
        bash(command), bash("mkfifo output/gate; echo > output/begun; cat output/gate"), COMPLETE
    )
    bench.start()
    job_id = bench.submit()
    wait_until(lambda: running(words), 60, "the command runs")
    bench.cli("cancel", job_id)
    wait_until(lambda: not running(words), 60, "the command is dead")
    assert bench.wait_ended(job_id).state == State.CANCELLED
    bench.cli("retry", job_id)
    bench.wait_file(job_id, "begun")
    assert "pausing after this step" in bench.cli("pause", job_id, "--json")
    assert bench.view(job_id).state == State.RUNNING
    bench.file(job_id, "gate").write_text("go on\n")
    wait_until(lambda: bench.view(job_id).state == State.PAUSED, 60, "it pauses")
    bench.cli("resume", job_id)
    assert bench.wait_ended(job_id).state == State.SUCCEEDED
    bench.assert_sound(job_id)


def test_pause_and_cancel_while_it_waits_for_a_person(sqlite_bench: Bench) -> None:
    """It holds no worker: both act at once. A retry asks the same question again, without a model call."""
    bench = sqlite_bench
    bench.endpoint.mind = story(ASK, COMPLETE)
    bench.start()
    job_id = bench.submit()
    wait_until(lambda: bench.view(job_id).state == State.WAITING_HUMAN, 60, "it asks")
    assert json.loads(bench.cli("pause", job_id, "--json"))["state"] == State.PAUSED
    bench.cli("resume", job_id)
    assert bench.view(job_id).state == State.WAITING_HUMAN
    assert json.loads(bench.cli("cancel", job_id, "--json"))["state"] == State.CANCELLED
    bench.cli("retry", job_id)
    wait_until(lambda: bench.view(job_id).state == State.WAITING_HUMAN, 60, "it asks again")
    bench.cli("reply", job_id, "Blue.")
    assert bench.wait_ended(job_id).state == State.SUCCEEDED
    bench.assert_sound(job_id)
