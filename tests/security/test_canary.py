"""A canary where the secrets are, looked for in every place that it could come to."""

from __future__ import annotations

import base64
import json
import logging
import os
from pathlib import Path
from urllib.parse import quote

import pytest
import sqlalchemy as sa

from jobs.states import State
from storage.models import metadata
from tests.agent.stage import COMPLETE, Stage, call, calls, go
from tests.strict_endpoint import Reply

CANARY = "sk-canary-7Qz/41+x9"
FORMS = (CANARY, quote(CANARY, safe=""), base64.b64encode(CANARY.encode()).decode()[:20])


def _database(stage: Stage) -> str:
    """Every row of every table."""
    shown = []
    with stage.doors.db.read() as conn:
        for table in metadata.sorted_tables:
            shown += [json.dumps(dict(row._mapping), default=str) for row in conn.execute(sa.select(table))]
    return "\n".join(shown)


def test_a_secret_comes_to_no_sink(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody pasted the key into everything that a job takes in, and the model and its tools say it again."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    stage.reopen(openai_api_key=CANARY)
    spoken = f"{CANARY} {quote(CANARY, safe='')} {base64.b64encode(CANARY.encode()).decode()}"
    job_id = stage.submit(
        f"The key is {CANARY}.",
        files={"key.txt": CANARY.encode()},
        metadata={"key": CANARY},
        task_identifier=CANARY,
        idempotency_key=CANARY,
    )
    stage.comment(job_id, f"mind {CANARY}", author=f"ann {CANARY}")
    stage.tell(
        Reply(
            text=spoken,
            calls=(call("Bash", command=f"echo {CANARY}; env; cat /proc/*/environ /proc/*/cmdline 2>&1"),),
        ),
        calls(
            call("Read", path="input/key.txt"), call("Grep", pattern="canary"), call("no such tool " + CANARY)
        ),
        calls(call("todo_write", todos=[{"id": "1", "content": spoken, "status": "completed"}])),
        calls(call("plan", plan_type="x", plan_content=spoken)),
        calls(call("Bash", command=f"printf '%s' '{CANARY[:9]}'; sleep 0.1; printf '%s' '{CANARY[9:]}'")),
        go("COMPLETE", spoken, lessons=spoken),
    )
    stage.run()
    assert stage.job(job_id).state == State.SUCCEEDED
    stored = _database(stage)
    assert "***" in stored
    assert [form for form in FORMS if form in stored] == []
    asked = json.dumps([request.body for request in stage.endpoint.requests], ensure_ascii=False)
    assert [form for form in FORMS if form in asked] == []
    written = "".join(
        file.read_text(errors="replace")
        for file in (stage.workspace(job_id) / "logs").rglob("*")
        if file.is_file()
    )
    assert [form for form in FORMS if form in written] == []
    arguments = "".join(
        file.read_bytes().decode("utf-8", "replace") for file in Path("/proc/self/task").glob("*/cmdline")
    )
    assert CANARY not in arguments


def test_a_failure_that_names_a_secret_is_stored_without_it(stage: Stage) -> None:
    stage.reopen(openai_api_key=CANARY)

    def fail(*_: object) -> str:
        raise RuntimeError(f"connecting with {CANARY} failed")

    stage.acts[0].effect = fail
    job_id = stage.play(calls(call("Act")), COMPLETE)
    assert "connecting with *** failed" in stage.results(job_id)[0]
    assert CANARY not in _database(stage)


def test_the_settings_show_no_secret(stage: Stage) -> None:
    stage.reopen(openai_api_key=CANARY)
    assert CANARY not in repr(stage.doors.settings)
    assert CANARY not in str(stage.doors.settings)
    assert os.environ.get("OPENAI_API_KEY") != CANARY
