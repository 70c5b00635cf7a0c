"""Limits in a worker: a full key's job is not run beside the other, and goes on, woken, when there is room."""

from __future__ import annotations

import threading

from jobs.settings import LimitSettings
from jobs.wakeups import WakeUp
from tests.agent.stage import COMPLETE, Stage
from tests.strict_endpoint import Answer, ChatRequest
from worker.slices import run_slice
from worker.sweep import sweep_once


def _wakes(stage: Stage) -> list[tuple[str, str]]:
    """Every wake-up that the worker sends from now on."""
    sent: list[tuple[str, str]] = []

    def send(queue: str, job_id: str) -> WakeUp:
        sent.append((queue, job_id))
        return WakeUp(queue, job_id)

    stage.process.wakeups.send = send  # type: ignore[method-assign,assignment]
    return sent


def test_one_job_of_a_repository_at_a_time(stage: Stage) -> None:
    stage.restart(limits=LimitSettings(per_repository={"*": 1}))
    asked, answer = threading.Event(), threading.Event()

    def slow(_: ChatRequest) -> Answer:
        asked.set()
        assert answer.wait(60)
        return COMPLETE

    stage.tell(slow, COMPLETE)
    first, second = (stage.submit(repository="o/r") for _ in range(2))
    sent = _wakes(stage)
    with stage.running():
        assert asked.wait(60)
        assert run_slice(stage.process, second) is None
        assert stage.job(second).reason == "limited"
        sweep_once(stage.process)
        assert stage.job(second).reason == "limited"
        assert ("agent", second) not in sent
        answer.set()
    assert stage.job(first).state == "succeeded"
    assert ("agent", second) in sent
    assert stage.run() == second
    assert stage.job(second).state == "succeeded"


def test_the_sweep_lets_go_what_a_dead_worker_could_not(stage: Stage) -> None:
    """It died between its job's end and the end of the hold; or the limit was taken out of the settings."""
    stage.restart(limits=LimitSettings(per_piece={"general": 1}))
    for gone in ("dead", "no limit"):
        stage.tell(COMPLETE)
        first, second = (stage.submit() for _ in range(2))
        with stage.process.db.write() as conn:
            conn.exec_driver_sql(
                f"UPDATE jobs SET held_for = '[\"piece\",1,\"general\",null]' WHERE id = '{second}'"
            )
        stage.cancel(first)
        if gone == "no limit":
            stage.restart(limits=LimitSettings())
        sent = _wakes(stage)
        sweep_once(stage.process)
        assert ("agent", second) in sent
        assert stage.run() == second
