"""A job that takes all it can get slows its own command, not the worker and not the API."""

from __future__ import annotations

import json
import urllib.request

import pytest

from tests.crash.bench import shape
from tests.resilience.bench import COMPLETE, Bench, bash, job_of
from tests.resilience.conftest import sqlite_bench
from tests.strict_endpoint import ChatRequest, Reply

__all__ = ["sqlite_bench"]

GREEDY = {
    "a fork bomb": "bomb() { bomb | bomb & }; bomb; while :; do :; done",
    "output without end": "yes 'all work and no play'",
    "memory": "while :; do x=$x$(head -c 1000000 /dev/zero | tr '\\0' x); done",
    "files": "i=0; while :; do : > output/$i; i=$((i+1)); done",
    "a file without end": "while :; do cat /dev/zero > output/zero; done",
    "processors": "for _ in $(seq 50); do (while :; do :; done) & done; wait",
}


@pytest.mark.parametrize("greed", GREEDY.values(), ids=GREEDY)
def test_another_job_ends_and_the_api_answers_meanwhile(
    greed: str, sqlite_bench: Bench, free_port: int
) -> None:
    """The greedy job is held until the other one is through, so nothing here hangs on how fast anything is."""
    bench = sqlite_bench
    greedy: list[str] = []

    def mind(request: ChatRequest) -> Reply:
        if job_of(request) not in greedy:
            return (bash("echo through"), COMPLETE)[request.replies]
        # Again as soon as a cap ends it: the machine has no rest while the other job works.
        return bash(f": {request.replies}; touch output/begun; {greed}")

    bench.endpoint.mind = mind
    worker = bench.start(
        SOSTENUTO_BASH_TIMEOUT="600", SOSTENUTO_MAX_WORKSPACE_FILES="500", SOSTENUTO_MAX_FILE_BYTES="1000000"
    )
    web = bench.commands.run("web", "--port", str(free_port), env=bench.env())
    web.wait_for_log("listening on")
    greedy.append(bench.submit("Take all."))
    bench.wait_file(greedy[0], "begun")
    other = bench.submit("Be quick.")
    assert bench.wait_ended(other).state == "succeeded"
    with urllib.request.urlopen(f"http://127.0.0.1:{free_port}/healthz", timeout=30) as answer:
        assert json.load(answer)["status"] == "ok"
    assert worker.returncode is None
    assert bench.deaths(greedy[0]) == bench.deaths(other) == 0
    bench.cli("cancel", greedy[0])
    assert bench.wait_ended(greedy[0]).state in ("cancelled", "failed")
    assert any("through" in told for _, _, told in shape(bench.messages(other)))
