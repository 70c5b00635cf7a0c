"""The same over RabbitMQ: jobs run, and go on after their worker's connection was closed by force."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kombu import Connection

from jobs.states import State
from jobs.wakeups import QUEUES, WakeUpPublisher
from tests.resilience.bench import COMPLETE, Bench, bash, story
from tests.resilience.proxies import Proxy
from tests.waiting import wait_until

pytestmark = pytest.mark.rabbitmq
PORT = 5672
PREFIX = "sostenuto-test-"


@pytest.fixture
def vhost() -> Iterator[str]:
    """A virtual host of the test's own where RabbitMQ's tool is at hand; else the usual one, its queues removed."""
    tool = shutil.which("rabbitmqctl")
    if tool is None:
        _delete_queues()
        yield ""
        _delete_queues()
        return
    _delete_left_over(tool)
    name = f"{PREFIX}{os.getpid()}-{uuid.uuid4().hex}"
    subprocess.run([tool, "add_vhost", name], check=True, capture_output=True)
    subprocess.run(
        [tool, "set_permissions", "-p", name, "guest", ".*", ".*", ".*"], check=True, capture_output=True
    )
    yield name
    subprocess.run([tool, "delete_vhost", name], check=True, capture_output=True)


def _delete_left_over(tool: str) -> None:
    """Virtual hosts of test sessions that were killed; their names tell whose they were."""
    listed = subprocess.run([tool, "-q", "list_vhosts"], check=True, capture_output=True, text=True).stdout
    for name in listed.split():
        owner = name.removeprefix(PREFIX).partition("-")[0]
        if name.startswith(PREFIX) and owner.isdigit() and not Path("/proc", owner).exists():
            subprocess.run([tool, "delete_vhost", name], check=False, capture_output=True)


def _delete_queues() -> None:
    with Connection(_url(PORT, "")) as connection:
        for queue in QUEUES:
            connection.default_channel.queue_delete(queue)


def _url(port: int, vhost: str) -> str:
    return f"amqp://guest:guest@127.0.0.1:{port}/{vhost or '/'}"


def _waiting(vhost: str) -> int:
    with Connection(_url(PORT, vhost)) as connection:
        return int(connection.default_channel.queue_declare("agent", passive=True).message_count)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy(PORT) as proxy:
        yield proxy


def test_jobs_run_and_go_on_after_their_connection_was_closed(
    sqlite_bench: Bench, vhost: str, proxy: Proxy
) -> None:
    """Busy and idle; also with a slice for every step, so that each hand-over is a message."""
    bench = sqlite_bench
    bench.endpoint.mind = story(bash("true"), bash("true"), COMPLETE)
    bench.environment["SOSTENUTO_BROKER_URL"] = _url(proxy.port, vhost)
    bench.environment["SOSTENUTO_SLICE_STEPS"] = "1"
    worker = bench.start()
    held = bench.submit_to(_url(PORT, vhost))
    gate = bench.endpoint.hold(held + "/*")
    gate.wait_held()
    job_ids = [bench.submit_to(_url(PORT, vhost)) for _ in range(3)]
    for job_id in job_ids:
        assert bench.wait_ended(job_id).state == State.SUCCEEDED
    proxy.cut()  # one slot is busy
    busy = bench.submit_to(_url(PORT, vhost))
    assert bench.wait_ended(busy, 120).state == State.SUCCEEDED
    gate.release()
    assert bench.wait_ended(held).state == State.SUCCEEDED
    proxy.cut()  # all are idle
    idle = bench.submit_to(_url(PORT, vhost))
    assert bench.wait_ended(idle, 120).state == State.SUCCEEDED
    for job_id in (*job_ids, held, busy, idle):
        assert [run["outcome"] for run in bench.runs(job_id)] == ["requeue", "requeue", "succeed"]
        bench.assert_sound(job_id)
    assert worker.returncode is None
    wait_until(lambda: _waiting(vhost) == 0, 60, "all messages are read")


def test_a_broker_that_confirms_nothing_holds_no_sender(vhost: str, proxy: Proxy) -> None:
    """The publisher gives up after a second, and is heard over a new connection."""
    publisher = WakeUpPublisher(_url(proxy.port, vhost))
    wait_until(lambda: publisher.send_and_wait("agent", "first"), 60, "the queue is there")
    proxy.silence()
    silenced = publisher.send("agent", "second")
    assert silenced.done.wait(60)
    assert not silenced.delivered
    wait_until(lambda: publisher.send_and_wait("agent", "third"), 60, "a message is confirmed again")
    publisher.close()
