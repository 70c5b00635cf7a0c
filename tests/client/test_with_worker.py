"""A server process and a worker process: a job from its submit to its result, over both databases."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.installation import Installation, open_installation
from jobs.settings import Settings
from jobs.workspace import create_workspace, workspace_path
from sostenuto import Event, Sostenuto
from storage.models import TERMINAL_STATES
from tests import factories
from tests.client.conftest import token_for
from tests.client.either import KINDS, make_client
from tests.client.test_events import check_whole, end, step
from tests.servers.workers import CommandFactory, CommandProcess

ROOT = Path(__file__).parents[2]
SCRIPT = """
movements:
  work:
    - calls: [{Read: {path: input/names.txt}}]
    - transition: {next_step: ASK, summary: Which order?}
    - calls: [{Write: {path: output/sorted.txt, content: "{{ last_result }}"}}]
    - transition: {next_step: COMPLETE, summary: Sorted.}
"""


class Web:
    """`sostenuto web` on one port, to be killed and started again there."""

    def __init__(self, run: CommandFactory, installation: Installation, port: int) -> None:
        self._run = run
        self.installation = installation
        self.url = f"http://127.0.0.1:{port}"
        self._arguments = ("web", "--port", str(port))
        settings = installation.settings
        self.env = {
            "SOSTENUTO_DATABASE_URL": settings.database_url,
            "SOSTENUTO_DATA_DIR": str(settings.data_dir),
            "SOSTENUTO_MODEL": str(settings.model),
        }
        self.process: CommandProcess = self.start()

    def start(self) -> CommandProcess:
        self.process = self._run.run(*self._arguments, env=self.env)
        self.process.wait_for_log("listening on ")
        return self.process

    def worker(self) -> CommandProcess:
        return self._run("--concurrency", "2", env=self.env)

    def client(self, kind: str, **how: Any) -> Sostenuto:
        return make_client(kind, url=self.url, token=token_for(self.installation.db), **how)


@pytest.fixture
def web(migrated_url: str, data_dir: Path, worker_process: CommandFactory, free_port: int) -> Iterator[Web]:
    script = data_dir / "script.yaml"
    script.write_text(SCRIPT)
    settings = Settings(database_url=migrated_url, data_dir=data_dir, model=f"scripted:{script}")
    with open_installation(settings) as opened:
        yield Web(worker_process, opened, free_port)


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_from_submit_to_result(web: Web, kind: str, tmp_path: Path) -> None:
    client = web.client(kind)
    web.worker()
    job = client.submit("Sort them.", files={"names.txt": b"Noether\nCurie\n"})
    client.comment(job, "Thanks.")
    job = client.wait(job, timeout=120)
    assert job.state == "waiting_human"
    assert job.pending_question is not None
    assert job.pending_question.question == "Which order?"
    client.reply(job, "by name")
    told = list(client.events(job))
    check_whole(web.installation.db, job.id, told)
    job = client.wait(job, timeout=120)
    assert (job.succeeded, job.steps) == (True, 4)
    assert [remark.text for remark in client.comments(job) if remark.kind == "comment"] == [
        "Thanks.",
        "by name",
    ]
    assert "by name" in client.download(job, "output/sorted.txt", tmp_path).read_text()
    assert [call.name for call in client.tool_calls(job)] == ["Read", "transition", "Write", "transition"]
    (worker,) = client.workers()
    assert worker.concurrency == 2
    client.close()


def test_the_documented_code_runs(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every block of docs/python-client.md, one after the other, as one program."""
    text = (ROOT / "docs" / "python-client.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 4
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOSTENUTO_URL", web.url)
    monkeypatch.setenv("SOSTENUTO_TOKEN", token_for(web.installation.db))
    web.worker()
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)  # noqa: S102  the documentation's own code
    assert "by name" in (tmp_path / "sorted.txt").read_text()
    printed = capsys.readouterr().out
    for line in ("Which order?", "succeeded Sorted.", "now succeeded", "IllegalTransition 409"):
        assert line in printed
    documented = set(re.findall(r"`(\w+)`", text))
    public = {name for name in dir(Sostenuto) if not name.startswith("_")}
    assert public - {"close", "retries"} <= documented
    names["client"].close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_outlives_its_server(web: Web, kind: str) -> None:
    db = web.installation.db
    run = factories.running_job(db)
    client = web.client(kind, retries=12)
    stream = client.events(run.job_id)
    told: list[Event] = []
    for number in range(3):
        step(db, run, f"before {number}")
    told.extend(next(stream) for _ in range(4))
    web.process.kill()
    step(db, run, "while nobody listens")
    restart = threading.Thread(target=web.start)
    restart.start()
    told.append(next(stream))
    restart.join()
    step(db, run, "after")
    end(db, run)
    told.extend(stream)
    check_whole(db, run.job_id, told)
    client.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_fetch_outlives_its_server(web: Web, kind: str, tmp_path: Path) -> None:
    job_id = factories.make_job(web.installation.db, next(iter(TERMINAL_STATES)))
    data_dir = web.installation.settings.data_dir
    create_workspace(data_dir, job_id)
    content = os.urandom(60_000_000)
    (workspace_path(data_dir, job_id) / "output" / "big").write_bytes(content)
    client = web.client(kind, retries=12)
    fetched: list[Path] = []
    fetching = threading.Thread(
        target=lambda: fetched.append(client.download(job_id, "output/big", tmp_path / "big"))
    )
    fetching.start()
    while not any(file.stat().st_size > 1_000_000 for file in tmp_path.glob(".big.*.partial")):
        fetching.join(0.001)
        assert fetching.is_alive(), "it was fetched before the server could be killed"
    web.process.kill()
    web.start()
    fetching.join()
    assert fetched[0].read_bytes() == content
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".big")] == []
    client.close()
