"""How other systems are told to work: the same jobs for all, shared by their processes, and nothing in between is an answer."""

from __future__ import annotations

import io
import json
import sys
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.bench import QUICK, open_bench
from benchmarks.contestants import started
from benchmarks.model_server import ModelServer
from benchmarks.peers.serving import serve


def test_orders_are_answered_in_turn_and_what_a_job_prints_is_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A warm-up first; an order of no jobs runs none and is answered all the same."""
    orders = [{"jobs": 2, "work": 10}, {"jobs": 0, "work": 10}, {"jobs": 1, "work": 20}]
    answers = io.StringIO()
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(json.dumps(order) + "\n" for order in orders)))
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(sys, "stdout", answers)
    ran: list[tuple[int, int]] = []

    def run(jobs: int, work: int) -> None:
        print("a library's banner")
        ran.append((jobs, work))

    serve("its defaults", run, 2)
    assert ran == [(1, 2), (2, 10), (1, 20)]
    assert [json.loads(line) for line in answers.getvalue().splitlines()] == [
        {"ready": True, "settings": "its defaults"}, {"done": 2}, {"done": 0}, {"done": 1},
    ]  # fmt: skip


def test_processes_share_the_agents_and_each_takes_its_steps(tmp_path: Path) -> None:
    """Five agents of three steps in two processes: fifteen calls of the model, and what each process warms up with."""
    with open_bench(QUICK, tmp_path) as bench, closing(ModelServer(bench)) as model:
        with started(bench, "bare_agents", (), 2, model.env, python=sys.executable) as running:
            warm = len(model.calls())
            running.begin(5, "3-0-1")
            running.finish()
            assert len(model.calls()) - warm == 15
            assert "processes: 2" in running.settings
        assert all(process.poll() is not None for process in running.processes)
