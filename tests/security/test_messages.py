"""Messages of the broker are hostile too: nothing but JSON is decoded, whatever a message says it is."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from kombu import Connection

from jobs.states import State
from jobs.wakeups import AGENT_QUEUE, TASK_NAMES
from tests.resilience.bench import Bench
from tests.resilience.conftest import sqlite_bench
from tests.waiting import wait_until

__all__ = ["sqlite_bench"]


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (_spring, (str(self.mark),))


def _spring(mark: str) -> None:
    Path(mark).touch()


@pytest.mark.parametrize("kind", ["application/x-python-serialize", "application/json", "application/x-yaml"])
def test_a_pickle_is_refused_and_the_worker_goes_on(sqlite_bench: Bench, tmp_path: Path, kind: str) -> None:
    bench = sqlite_bench
    mark = tmp_path / "sprung"
    body = pickle.dumps(((Trap(mark),), {}, {}))
    worker = bench.start()
    with Connection(bench.broker.url) as connection:
        headers = {"id": "x", "task": TASK_NAMES[AGENT_QUEUE], "lang": "py", "argsrepr": "", "kwargsrepr": ""}
        producer = connection.Producer(serializer="json")
        producer.publish(
            body, routing_key=AGENT_QUEUE, headers=headers, content_type=kind, content_encoding="binary"
        )
    wait_until(
        lambda: "refus" in worker.log().lower() or "decod" in worker.log().lower(), 60, "it is refused"
    )
    job_id = bench.submit()
    assert bench.wait_ended(job_id).state == State.SUCCEEDED
    assert not mark.exists()
    assert worker.returncode is None
