"""Postgres is killed, restarted, cut off at the worst moment: every job finishes, and nothing doubles."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from jobs.states import State
from tests.resilience.bench import COMPLETE, Bench, bash, endless_command, job_of, running, story
from tests.resilience.proxies import CuttingProxy
from tests.servers.postgres import PostgresServer
from tests.strict_endpoint import ChatRequest, Reply
from tests.waiting import wait_until

APPEND = "echo done >> output/effects.txt"
STEPS = (bash(APPEND), bash("true"), bash("true"), COMPLETE)


def killed_and_restarted(server: PostgresServer, meanwhile: Callable[[], None]) -> None:
    server.kill()
    meanwhile()
    server.start()


def restarted_in_order(server: PostgresServer, meanwhile: Callable[[], None]) -> None:
    server.stop()
    meanwhile()
    server.start()


@pytest.mark.parametrize("fault", [killed_and_restarted, restarted_in_order])
def test_a_restart_with_workers_busy(
    fault: Callable[[PostgresServer, Callable[[], None]], None],
    private_postgres_bench: Bench,
    private_postgres: PostgresServer,
) -> None:
    """Replies arrive while the database is away. An outage of seconds is nobody's death."""
    bench = private_postgres_bench
    bench.endpoint.mind = story(*STEPS)
    first_calls = bench.endpoint.hold()
    job_ids = [bench.submit(f"Number {number}.") for number in range(6)]
    workers = [bench.start("--concurrency", "3") for _ in range(2)]
    first_calls.wait_held(6)

    fault(private_postgres, first_calls.release)

    for job_id in job_ids:
        view = bench.wait_ended(job_id, 120)
        assert (view.state, view.attempt, bench.deaths(job_id)) == (State.SUCCEEDED, 0, 0)
        bench.assert_sound(job_id)
        assert bench.effects(job_id) <= 1
    assert [worker.returncode for worker in workers] == [None, None]


def test_a_connection_cut_just_after_a_commit(
    private_postgres_bench: Bench, private_postgres: PostgresServer
) -> None:
    """The commit happened and nobody was told: claims, replies, results and ends alike are neither lost nor repeated."""
    bench = private_postgres_bench
    bench.endpoint.mind = story(*STEPS)
    job_ids = [bench.submit(f"Number {number}.") for number in range(6)]
    with CuttingProxy(private_postgres.port, every=7, most=25) as proxy:
        url = private_postgres.url().replace(str(private_postgres.port), str(proxy.port))
        bench.start("--concurrency", "3", SOSTENUTO_DATABASE_URL=url, SOSTENUTO_LEASE_SECONDS="5")
        for job_id in job_ids:
            assert bench.wait_ended(job_id, 150).state == State.SUCCEEDED
        assert proxy.cuts == 25
    for job_id in job_ids:
        bench.assert_sound(job_id)
        assert bench.deaths(job_id) == 0
        assert bench.effects(job_id) <= 1
        assert bench.endpoint.calls(job_id + "/*") == len(STEPS)


def test_no_transaction_is_open_while_a_model_or_a_tool_works(private_postgres_bench: Bench) -> None:
    """A transaction that was held meanwhile would be seen at every look; a heartbeat's is gone at the next."""
    bench = private_postgres_bench
    command, words = endless_command()
    in_model, in_bash = bench.submit("In the model."), bench.submit("In a command.")
    gate = bench.endpoint.hold(in_model + "/*")

    def mind(request: ChatRequest) -> Reply:
        return bash(command) if job_of(request) == in_bash else COMPLETE

    bench.endpoint.mind = mind
    bench.start()
    gate.wait_held()
    wait_until(lambda: running(words), 60, "the command runs")

    def none_open() -> bool:
        with bench.installation.db.read() as conn:
            held = (
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
            return bool(conn.execute(sa.text(held)).scalar_one() == 0)

    wait_until(none_open, 60, "no client has an open transaction")
    gate.release()
    assert bench.wait_ended(in_model).state == State.SUCCEEDED
