"""Canaries in a real worker process: a secret of each kind, said by the model and its tools in every form, looked for in
everything that the process, its children and its servers leave or let be seen."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import os
import socket
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlsplit, urlunsplit

import pytest
import sqlalchemy as sa

from jobs.api.application import create_api
from jobs.api.tokens import Scope, create_token
from jobs.workspace import workspace_path
from storage.models import metadata
from tests.deploy.flower import Flower
from tests.mcp.conftest import Plain, plain
from tests.resilience.bench import Bench, bash, story
from tests.resilience.conftest import make_bench
from tests.servers.redis import RedisServer
from tests.servers.workers import CommandFactory, CommandProcess
from tests.strict_endpoint import Call, Reply
from tests.waiting import wait_until
from worker.mcp.names import tool_names

__all__ = ["plain"]

MODEL, BROKER, DATABASE, MCP, FLOWER = (
    f"canary-{kind}-7Qz/41+x9~" for kind in ("model", "broker", "database", "mcp", "flower")
)
SECRETS = (MODEL, BROKER, DATABASE, MCP, FLOWER)
UNREGISTERED = "a-packages-own-secret-in-the-environment"


def forms(secret: str) -> list[str]:
    """As it is, in URLs, and the characters of base64 that no neighbour changes."""
    encoded = base64.b64encode(secret.encode()).decode()[:24]
    return [secret, quote(secret), quote(secret, safe=""), json.dumps(secret)[1:-1], encoded]


LOOK = tool_names("plain", ["look.around", "look around"])["look.around"]
FORBIDDEN = [form for secret in SECRETS for form in forms(secret)]


def found_in(text: str) -> list[str]:
    return [form for form in FORBIDDEN if form in text]


class SecuredRedis(RedisServer):
    """The test's broker, asked with a password."""

    @property
    def url(self) -> str:
        return f"redis://:{quote(BROKER, safe='')}@127.0.0.1:{self.port}/0"


@pytest.fixture
def bench(
    migrated_url: str,
    data_dir: Path,
    valkey_server: RedisServer,
    worker_process: CommandFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Bench]:
    """An installation whose every address and key has a secret in it."""
    client = valkey_server.client()
    client.config_set("requirepass", BROKER)
    client.close()
    valkey_server.__class__ = SecuredRedis
    parts = urlsplit(migrated_url)
    if parts.scheme != "sqlite":
        address = (parts.netloc.rpartition("@")[2], parts.username or "postgres")
        migrated_url = urlunsplit(
            parts._replace(netloc=f"{address[1]}:{quote(DATABASE, safe='')}@{address[0]}")
        )
    monkeypatch.setenv("OPENAI_API_KEY", MODEL)
    yield from make_bench(migrated_url, data_dir, valkey_server, worker_process)


class Overheard:
    """Everything that passes through the broker: what Flower shows of tasks, their arguments and their errors."""

    def __init__(self, broker: RedisServer) -> None:
        self._heard = bytearray()
        self._socket = socket.create_connection(("127.0.0.1", broker.port))
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Self:
        self._socket.sendall(f"AUTH {BROKER}\r\nMONITOR\r\n".encode())
        self._thread.start()
        wait_until(lambda: self._heard.count(b"+OK") == 2, 30, "the broker lets everything be heard")
        return self

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._socket.recv(1 << 16):
                self._heard += data

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(30)
        self._socket.close()

    def text(self) -> str:
        return self._heard.decode("utf-8", "replace").replace('\\"', '"')


def said(*secrets: str) -> str:
    """What a model that has them says of them: in all forms, and in one piece with other text in base64."""
    spoken = [form for secret in secrets for form in (secret, quote(secret, safe=""))]
    spoken += [
        base64.b64encode(f"{before}{secret}".encode()).decode()
        for secret in secrets
        for before in ("", "a", "ab")
    ]
    return " ".join(spoken)


def test_no_secret_comes_to_any_sink_of_a_worker(bench: Bench, plain: Plain, free_port: int) -> None:
    # SQLite has no password: there it is a word like any other.
    known = [secret for secret in SECRETS if secret != DATABASE or not bench.installation.db.is_sqlite]
    everything = said(*known)
    halves = "; ".join(
        f"printf %s '{secret[:11]}'; sleep 0.1; printf '%s\\n' '{secret[11:]}'" for secret in known
    )
    look = "env; cat /proc/*/environ /proc/*/cmdline 2>&1 | tr '\\0' '\\n'; ps auxww 2>&1"
    bench.endpoint.mind = story(
        Reply(text=everything, chunks=97, calls=(Call(LOOK), Call("mcp__plain__echo", {"text": everything}))),
        bash(look),
        bash(f"{halves}; printf '%s' '{everything}'"),
        Reply(text=f"I know {MODEL}", chunks=400, calls=(Call("Write", {"path": everything, "content": everything}), Call(everything))),
        Reply(calls=(Call("plan", {"plan_type": MODEL, "plan_content": everything}), Call("todo_write", {"todos": [{"id": "1", "content": everything, "status": "completed"}]}))),
        bash("touch output/looked; while [ ! -e output/seen ]; do sleep 0.1; done"),
        Reply(calls=(Call("transition", {"next_step": "COMPLETE", "summary": everything, "lessons": everything}),)),
    )  # fmt: skip
    servers = {"plain": plain(env={"TOKEN": "Bearer ${A_TOKEN}"})}
    servers["plain"]["read"] = [str(folder) for folder in servers["plain"]["read"]]
    env = {
        "OPENAI_API_KEY": MODEL, "A_TOKEN": MCP, "SOSTENUTO_MCP": json.dumps(servers), "WORD_COUNT_KEY": UNREGISTERED,
        "SOSTENUTO_MODELS": json.dumps({"strict": {"window": 200_000}}), "SOSTENUTO_FLOWER_PASSWORD": FLOWER,
    }  # fmt: skip
    with Overheard(bench.broker) as broker:
        bench.environment |= env
        flower = bench.commands.run("flower", "--port", "0", env=bench.env())
        flower.wait_for_log("listening on ")
        worker = bench.start("--log-level", "debug")
        bench.write_pieces()
        job_id = bench.cli("submit", "--piece", "plain", f"Mind {everything}").strip()
        seen = bench.wait_file(job_id, "looked")
        processes = _arguments_of(worker.pids()) + _environments_of(worker.pids()[1:])
        seen.with_name("seen").touch()
        view = bench.wait_ended(job_id)
        flowers_pages = _flower(flower, job_id)
        processes += _arguments_of(flower.pids())
        worker.term()
        worker.wait()
    assert view.state == "succeeded", worker.log()
    transcript = "\n".join(str(message.content) for message in bench.messages(job_id))
    assert "TERM=dumb" in transcript, "the command looked at its environment"
    assert '"TOKEN": "Bearer ***"' in transcript, "the server has its secret, and its answer is masked"
    assert transcript.count("***") > 20
    database = _database(bench)
    for place, text in {
        "processes": processes,
        "database": database,
        "broker": broker.text(),
        "worker's log": worker.log(),
        "Flower": flowers_pages,
        "data folder": _data_folder(bench, job_id),
        "model": json.dumps([request.body for request in bench.endpoint.requests], ensure_ascii=False),
        "API": _api(bench, job_id, free_port),
        "CLI": "".join(
            bench.cli(*command) for command in (("show", job_id, "--json"), ("transcript", job_id, "--full"))
        ),
    }.items():
        assert len(text) > 50, f"nothing was looked at: {place}"
        assert found_in(text) == [], place
    for text in (database, transcript, worker.log()):
        assert UNREGISTERED not in text, "not masked, but out of a command's reach"


def _arguments_of(pids: list[int]) -> str:
    return "\n".join(_read(Path(f"/proc/{pid}/cmdline")) for pid in pids)


def _environments_of(pids: list[int]) -> str:
    """Of all descendants but the MCP server's, whose secret it is."""
    shown = [_read(Path(f"/proc/{pid}/environ")) for pid in pids]
    return "\n".join(text for text in shown if "Bearer" not in text)


def _read(file: Path) -> str:
    with contextlib.suppress(OSError):
        return file.read_bytes().decode("utf-8", "replace").replace("\0", "\n")
    return ""


def _database(bench: Bench) -> str:
    """Every column of every row of every table."""
    shown: list[str] = []
    with bench.installation.db.read() as conn:
        for table in metadata.sorted_tables:
            rows = conn.execute(sa.select(table))
            shown += [json.dumps(dict(row._mapping), default=_shown, ensure_ascii=False) for row in rows]
    return "\n".join(shown)


def _shown(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _data_folder(bench: Bench, job_id: str) -> str:
    """Every file: logs, kept exchanges, the SQLite file; not what the agent itself wrote into input/ and output/."""
    data_dir = bench.installation.settings.data_dir
    workspace = workspace_path(data_dir, job_id)
    own = [workspace / name for name in ("input", "output")]
    shown = []
    for file in data_dir.rglob("*"):
        if file.is_file() and not any(file.is_relative_to(folder) for folder in own):
            data = file.read_bytes()
            shown += [
                str(file),
                (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8", "replace"),
            ]
    return "\n".join(shown)


def _api(bench: Bench, job_id: str, port: int) -> str:
    """What every GET route of the job says, and the log of the server that says it."""
    import httpx2

    web = bench.commands.run("web", "--port", str(port), env=bench.env())
    web.wait_for_log("listening on")
    token, _ = create_token(bench.installation.db, "local", list(Scope), None)
    with httpx2.Client(
        base_url=f"http://127.0.0.1:{port}",
        headers={"Authorization": f"Bearer {token}"},
        trust_env=False,
        timeout=60,
    ) as client:
        paths = [
            path
            for path in create_api(bench.installation).openapi()["paths"]
            if "{" not in path.replace("{job_id}", "")
        ]
        shown = []
        for path in paths:
            if path.endswith(("/events", "/workspace.zip")) or "stream" in path:
                continue
            answer = client.get(path.replace("{job_id}", job_id))
            shown.append(f"{path} {answer.status_code} {answer.text} {answer.headers}")
        assert sum(" 200 " in text for text in shown) > 12, shown
        with client.stream("GET", f"/api/jobs/{job_id}/events") as stream:
            shown.append("".join(stream.iter_text()))
    return "\n".join([*shown, web.log()])


def _flower(flower: CommandProcess, job_id: str) -> str:
    """Every page and list of Flower, and its log; of the worker all that it tells on request, its settings included."""
    seen = Flower(flower.log().split("listening on ")[1].split()[0], password=FLOWER)
    task = seen.wait_task(job_id, state="SUCCESS", kwargs="'left': 'succeeded")
    with seen.client() as client:
        paths = [
            "/", "/tasks", "/broker", "/metrics", "/api/tasks", "/api/task/types", "/api/workers?refresh=1",
            f"/worker/{task['worker']}", f"/task/{task['uuid']}", f"/api/task/info/{task['uuid']}", "/api/queues/length",
        ]  # fmt: skip
        answers = [client.get(path) for path in paths]
    assert {answer.status_code for answer in answers} == {200}, answers
    assert "worker_disable_prefetch" in answers[7].text, "the worker told its settings"
    return "\n".join([*(answer.text for answer in answers), flower.log()])


def _complains(worker: CommandProcess) -> bool:
    return "127.0.0.1" in worker.log() or worker.returncode is not None


def test_a_worker_that_dies_of_its_settings_tells_no_secret(bench: Bench) -> None:
    """Tracebacks and errors of a database and a broker that do not answer."""
    for name, address in (
        ("SOSTENUTO_DATABASE_URL", f"postgresql://me:{quote(DATABASE, safe='')}@127.0.0.1:1/x"),
        ("SOSTENUTO_BROKER_URL", f"redis://:{quote(BROKER, safe='')}@127.0.0.1:1/0"),
    ):
        worker = bench.commands(
            "--log-level", "debug", env=bench.env(OPENAI_API_KEY=MODEL, **{name: address})
        )
        complains = partial(_complains, worker)
        wait_until(complains, 60, "it complains of an address that does not answer")
        worker.kill()
        assert worker.log()
        assert found_in(worker.log()) == []
    assert os.environ["OPENAI_API_KEY"] == MODEL
