"""A broker that loses, doubles and forgets messages, dies, comes back, or lies still: the next job runs.

A worker that has gone deaf never runs another job, whatever the sweep sends it; so the next job tells.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs.states import State
from jobs.wakeups import WakeUpPublisher
from tests.resilience import saturated
from tests.resilience.bench import Bench
from tests.resilience.conftest import make_bench
from tests.resilience.proxies import Proxy
from tests.servers.redis import RedisServer
from tests.servers.session import ServerSession
from tests.servers.workers import CommandFactory
from tests.waiting import wait_until

QUEUE = "agent"


# --- messages ---


def test_messages_lost_doubled_reordered_and_late(sqlite_bench: Bench) -> None:
    """A hundred copies of a wake-up bring one run; jobs whose wake-ups are gone run all the same."""
    bench = sqlite_bench
    doubled, reordered = bench.submit(), [bench.submit() for _ in range(2)]
    client = bench.broker.client()
    messages = client.lrange(QUEUE, 0, -1)
    assert len(messages) == 3
    client.delete(QUEUE)
    client.lpush(QUEUE, *messages, *messages[2:] * 99)  # the oldest is the last of the list
    bench.start()
    for job_id in (doubled, *reordered):
        assert bench.wait_ended(job_id).state == State.SUCCEEDED
    wait_until(lambda: client.llen(QUEUE) == 0, 60, "all copies are read")
    lost = bench.submit_silently()
    late = messages[2]
    client.lpush(QUEUE, late)
    assert bench.wait_ended(lost).state == State.SUCCEEDED
    for job_id in (doubled, *reordered, lost):
        assert [run["outcome"] for run in bench.runs(job_id)] == ["succeed"]
        assert bench.endpoint.calls(job_id + "/*") == 1


def test_a_broker_that_is_away_piles_up_no_wake_ups(valkey_server: RedisServer) -> None:
    """The sweep wakes a job every few seconds; while nobody takes its messages, one for each job is enough."""
    publisher = WakeUpPublisher(valkey_server.url)
    assert publisher.send_and_wait(QUEUE, "first")
    valkey_server.freeze()
    wake_ups = [publisher.send(QUEUE, f"job-{number % 2}") for number in range(1000)]
    assert len({id(wake_up) for wake_up in wake_ups}) <= 4
    valkey_server.thaw()
    for wake_up in wake_ups:
        assert wake_up.done.wait(60)
    assert publisher.send_and_wait(QUEUE, "last")
    publisher.close()


def test_the_brokers_keys_stay_few(sqlite_bench: Bench) -> None:
    """However many jobs went through, nothing of them stays in the broker."""
    bench = sqlite_bench
    bench.start()

    def keys_after(count: int) -> list[str]:
        for job_id in [bench.submit() for _ in range(count)]:
            assert bench.wait_ended(job_id).state == State.SUCCEEDED
        client = bench.broker.client()
        wait_until(
            lambda: client.llen(QUEUE) == 0 and client.hlen("unacked") == 0, 60, "all messages are read"
        )
        return sorted(map(str, client.keys("*")))

    first = keys_after(5)
    assert keys_after(60) == first


# --- the server ---


@pytest.fixture(params=["valkey_server", "redis_server"])
def broker_bench(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    _migrated_sqlite: Path,
    data_dir: Path,
    worker_process: CommandFactory,
) -> Iterator[Bench]:
    (tmp_path / "test.db").write_bytes(_migrated_sqlite.read_bytes())
    broker: RedisServer = request.getfixturevalue(request.param)
    yield from make_bench(f"sqlite:///{tmp_path}/test.db", data_dir, broker, worker_process)


def flushed(bench: Bench) -> None:
    bench.broker.flush()


def killed_and_restarted(bench: Bench) -> None:
    bench.broker.kill()
    bench.broker.start()


def stopped_and_restarted(bench: Bench) -> None:
    bench.broker.restart()


def connections_cut(bench: Bench) -> None:
    cut_connections(bench.broker)


def cut_connections(server: RedisServer) -> None:
    for kind in ("normal", "pubsub"):
        server.client().client_kill_filter(_type=kind, skipme=True)


def gone_for_a_while(bench: Bench) -> None:
    """Long enough for several attempts to reconnect; what is submitted meanwhile is accepted."""
    bench.broker.kill()
    bench.missed.append(bench.submit("While it was gone."))
    worker = bench.commands.started[0]
    wait_until(lambda: worker.log().count("Cannot connect") >= 2, 120, "the worker tries to reconnect")
    bench.missed.append(bench.submit("Still gone."))
    bench.broker.start()


def lying_still(bench: Bench) -> None:
    """Connections stay open and nothing answers."""
    bench.broker.freeze()
    bench.missed.append(bench.submit("While it lay still."))
    bench.broker.thaw()


FAULTS: tuple[Callable[[Bench], None], ...] = (
    flushed,
    killed_and_restarted,
    connections_cut,
    lying_still,
    gone_for_a_while,
    stopped_and_restarted,
)


@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
def test_the_next_job_runs_whatever_the_broker_did(busy: bool, broker_bench: Bench) -> None:
    """One worker lives through all of it, with half of its slots at work or with none."""
    bench = broker_bench
    working = [bench.submit("Goes on and on.") for _ in range(2)] if busy else []
    gates = [bench.endpoint.hold(job_id + "/*") for job_id in working]
    worker = bench.start("--concurrency", "4")
    for gate in gates:
        gate.wait_held()
    for fault in FAULTS:
        fault(bench)
        for job_id in (*bench.missed, bench.submit(f"After it was {fault.__name__}.")):
            assert bench.wait_ended(job_id, 120).state == State.SUCCEEDED, fault.__name__
        bench.missed.clear()
        assert worker.returncode is None
    for gate in gates:
        gate.release()
    for job_id in working:
        assert bench.wait_ended(job_id).state == State.SUCCEEDED
        assert [run["outcome"] for run in bench.runs(job_id)] == ["succeed"]


def test_half_open_connections(sqlite_bench: Bench) -> None:
    """Connections over which nothing passes any more, as after a firewall forgot them: the worker notices."""
    bench = sqlite_bench
    with Proxy(bench.broker.port) as proxy:
        gate = bench.endpoint.hold()
        worker = bench.start(SOSTENUTO_BROKER_URL=f"redis://127.0.0.1:{proxy.port}/0")
        working = bench.submit()
        gate.wait_held()
        proxy.silence()
        gate.release()
        for job_id in (working, bench.submit("Afterwards.")):
            assert bench.wait_ended(job_id, 150).state == State.SUCCEEDED
        assert worker.returncode is None


# --- the event loop ---


@pytest.mark.parametrize("cut", [False, True], ids=["fresh", "reconnected"])
def test_a_saturated_worker_is_as_quick_as_a_prefetching_one(
    cut: bool, valkey_server: RedisServer, server_session: ServerSession
) -> None:
    """Without the mend a freed slot waits for the loop's next poll, up to a second; also after a lost connection.

    Task events, which Flower reads, turn the loop as well; what works only while they are on is not relied on.
    """
    prefetching, ours = (
        _rate(valkey_server, server_session, prefetch=prefetch, cut=cut) for prefetch in (True, False)
    )
    assert ours >= prefetching / 2


def _rate(server: RedisServer, session: ServerSession, *, prefetch: bool, cut: bool) -> float:
    """Tasks a second of a real worker with two slots."""
    server.flush()
    folder = session.new_folder("saturated")
    log = folder / "output.log"
    command = [sys.executable, "-m", saturated.__name__, server.url, str(folder), str(int(prefetch))]
    process = session.spawn(command, log, cwd=Path(__file__).parents[2])
    publisher = WakeUpPublisher(server.url)
    try:
        wait_until(lambda: "ready\n" in log.read_text(), 60, "the worker is ready")
        if cut:
            cut_connections(server)
        for number in range(saturated.TASKS):
            publisher.send(QUEUE, f"job-{number}")
        wait_until(lambda: "rate=" in log.read_text(), 150, "the worker has done them all")
        return float(log.read_text().partition("rate=")[2].split()[0])
    finally:
        publisher.close()
        process.kill()
        process.wait(60)
