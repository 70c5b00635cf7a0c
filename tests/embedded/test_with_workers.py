"""Real workers over the embedded broker: it lives as long as one of them, and dies with the last."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from jobs import embedded_server
from tests.servers.workers import CommandFactory
from tests.waiting import wait_until

READY = "is ready: queues"


def _broker_pid(data_dir: Path) -> int | None:
    return embedded_server.answering_pid(data_dir / "run" / "valkey.sock", 5)


def test_the_last_worker_that_ends_in_order_takes_the_broker_with_it(
    worker_process: CommandFactory, data_dir: Path
) -> None:
    workers = [worker_process() for _ in range(2)]
    for worker in workers:
        worker.wait_for_log(READY)
    broker = _broker_pid(data_dir)
    assert broker is not None
    workers[0].term()
    workers[0].wait()
    assert _broker_pid(data_dir) == broker
    workers[1].term()
    workers[1].wait()
    assert _broker_pid(data_dir) is None
    assert not embedded_server._command_line(broker)


def test_a_killed_workers_broker_serves_the_next_worker(
    worker_process: CommandFactory, data_dir: Path
) -> None:
    first = worker_process()
    first.wait_for_log(READY)
    broker = _broker_pid(data_dir)
    first.kill_only()
    second = worker_process()
    second.wait_for_log(READY)
    assert _broker_pid(data_dir) == broker


def test_a_killed_broker_comes_back_and_its_worker_reconnects(
    worker_process: CommandFactory, data_dir: Path
) -> None:
    worker = worker_process()
    worker.wait_for_log(READY)
    broker = _broker_pid(data_dir)
    assert broker is not None
    os.kill(broker, signal.SIGKILL)
    worker.wait_for_log("the embedded broker had died and was started again")
    wait_until(lambda: worker.log().count("Connected to redis+socket://") >= 2, 60, "the worker reconnected")
    assert worker.returncode is None


def test_a_stopped_worker_goes_on_when_it_is_continued(worker_process: CommandFactory) -> None:
    worker = worker_process()
    worker.wait_for_log(READY)
    worker.stop()
    stat = Path(f"/proc/{worker.pid}/stat")
    wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", reason="the worker is stopped")
    worker.cont()
    worker.interrupt()
    assert worker.wait() == 0
