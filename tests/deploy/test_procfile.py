"""The Procfile, really started: every process of it, over Redis and Postgres, with a job through the API, seen in Flower."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from jobs.api.tokens import Scope, create_token
from jobs.settings import Settings
from jobs.workspace import workspace_path
from sostenuto import Sostenuto
from storage.engine import Database
from storage.registry import live_workers
from tests.crash.bench import PIECE, mind
from tests.deploy.flower import PASSWORD, Flower
from tests.servers.redis import RedisServer
from tests.servers.session import ServerSession, free_port
from tests.strict_endpoint import StrictEndpoint
from tests.test_repository import ROOT
from tests.waiting import wait_until

LINE = re.compile(r"^(\w+): exec \.venv/bin/sostenuto (.+)$")


def commands() -> dict[str, str]:
    lines = (ROOT / "Procfile").read_text(encoding="utf-8").splitlines()
    found = [LINE.match(line) for line in lines if not line.startswith("#")]
    assert None not in found
    return {match[1]: match[2] for match in found if match}


def test_it_names_every_role() -> None:
    assert commands() == {
        "worker": "worker --queues agent",
        "context": "worker --queues context",
        "web": "web --port ${WEB_PORT:-8787}",
        "flower": "flower --port ${FLOWER_PORT:-5555}",
    }


@pytest.mark.parametrize("migrated_url", ["postgres"], indirect=True)
def test_every_process_runs_and_a_job_is_done_and_seen(
    server_session: ServerSession,
    migrated_url: str,
    redis_server: RedisServer,
    data_dir: Path,
) -> None:
    web, flower = free_port(), Flower(f"http://127.0.0.1:{free_port()}")
    (data_dir / "pieces").mkdir()
    (data_dir / "pieces" / "crash.yaml").write_text(PIECE)
    log = data_dir / "honcho.log"
    with StrictEndpoint(mind) as endpoint:
        given = {
            "SOSTENUTO_DATABASE_URL": migrated_url,
            "SOSTENUTO_BROKER_URL": redis_server.url,
            "SOSTENUTO_DATA_DIR": str(data_dir),
            "SOSTENUTO_MODEL": "strict",
            "SOSTENUTO_FLOWER_PASSWORD": PASSWORD,
            "OPENAI_BASE_URL": endpoint.url,
            "OPENAI_API_KEY": "a-key-of-the-endpoint",
            "WEB_PORT": str(web),
            "FLOWER_PORT": flower.url.rpartition(":")[2],
        }
        first, second = endpoint.hold("*/1/*"), endpoint.hold("*/2/*")
        honcho = server_session.spawn(
            [
                sys.executable,
                "-m",
                "honcho",
                "--procfile",
                str(ROOT / "Procfile"),
                "--app-root",
                str(ROOT),
                "start",
            ],
            log,
            env={**os.environ, **given},
            submark=data_dir.name,
            cwd=ROOT,
        )
        db = Database(given["SOSTENUTO_DATABASE_URL"])
        token, _ = create_token(db, "ann", [str(scope) for scope in Scope], None)

        def is_up() -> bool:
            assert honcho.poll() is None, log.read_text()
            text = log.read_text()
            return text.count("is ready: queues") == 2 and text.count("listening on ") == 2

        wait_until(is_up, 90, "every line of the Procfile runs")
        assert {queue for worker in live_workers(db, 60) for queue in worker["queues"]} == {
            "agent",
            "context",
        }
        with Sostenuto(f"http://127.0.0.1:{web}", token) as client:
            job = client.submit("Do it.", piece="crash", files={"facts.txt": b"six times seven\n"})
            first.wait_held()
            seen = flower.wait_task(
                job.id, name="sostenuto.agent", state="RUNNING", kwargs="'movement': 'work'"
            )
            with flower.client() as known:
                workers = known.get("/api/workers", params={"refresh": "1"}).json()
            assert seen["worker"] in workers
            assert {queue["name"] for queue in workers[seen["worker"]]["active_queues"]} == {"agent"}
            first.release()
            second.wait_held()
            flower.wait_task(job.id, state="RUNNING", kwargs="'movement': 'finish'", worker=seen["worker"])
            second.release()
            assert client.wait(job.id, timeout=90).state == "succeeded"
        flower.wait_task(job.id, state="SUCCESS", kwargs="'left': 'succeeded")
        flower.wait_task(
            job.id, name="sostenuto.summary", state="SUCCESS"
        )  # by the worker of the other queue
        endpoint.assert_clean()
    effects = workspace_path(Settings(data_dir=data_dir).data_dir, job.id) / "output" / "effects.txt"
    assert effects.read_text() == "done\n"
    honcho.terminate()
    honcho.wait(60)
    stopped = log.read_text()
    assert len(re.findall(r"(worker|context|web|flower)\.1 +\| .*", stopped)) > 4
    assert live_workers(db, 60) == [], "they stopped in order"
    db.close()
