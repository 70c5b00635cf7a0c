"""The recount finds what is damaged on purpose, and nothing in what is whole."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from jobs.installation import Installation
from jobs.settings import Settings
from jobs.workspace import workspace_path
from storage.engine import Database
from storage.models import comments, jobs, messages, runs, summaries
from tests.servers.session import ServerSession
from tests.storm.audit import LOST, REPEATED, STUCK, audit
from tests.storm.evidence import Evidence, JobRecord, read_ledger, read_records
from tests.storm.mind import COMMENT, Mind
from tests.storm.recipes import Recipe
from tests.storm.run import gather, settle
from tests.storm.site import Site
from tests.storm.traffic import Mix, Traffic
from tests.strict_endpoint import ChatRequest

PLAIN, ASKING, FAMILY = "t000000000001", "t000000000002", "t000000000003"
RECIPES = [
    Recipe(PLAIN, work=7, check=3),
    Recipe(ASKING, work=2, check=2, ask=True),
    Recipe(FAMILY, work=3, check=1, children=2),
]


@dataclass
class Scene:
    """What a calm day left, in a copy that may be damaged."""

    installation: Installation
    ledger: Path
    calm: Evidence
    requests: list[ChatRequest]

    def evidence(self) -> Evidence:
        """As it is now."""
        records, effects = read_records(self.installation), read_ledger(self.ledger)
        return replace(self.calm, records=records, effects=effects)

    def record(self, token: str) -> JobRecord:
        return next(r for r in self.calm.records.values() if r.row["idempotency_key"] == token)

    def change(self, *statements: sa.Executable) -> None:
        with self.installation.db.write() as conn:
            for statement in statements:
                conn.execute(statement)


@pytest.fixture(scope="module")
def calm_day(server_session: ServerSession) -> Iterator[tuple[Site, Evidence, list[ChatRequest]]]:
    """A job of each kind, on one worker that nothing happens to."""
    mind = Mind()
    site = Site(server_session, "sqlite", "valkey", mind, {})
    traffic = Traffic(site, 1, Mix())
    for recipe in RECIPES:
        traffic.submit(recipe)
    traffic.drain()
    site.open_slots(1, 4)
    traffic.start()
    settled = settle(site, traffic, 120)
    traffic.stop()
    assert settled is not None
    yield site, gather(site, traffic, mind), list(site.endpoint.requests)
    site.close()


@pytest.fixture
def scene(calm_day: tuple[Site, Evidence, list[ChatRequest]], tmp_path: Path) -> Iterator[Scene]:
    site, evidence, requests = calm_day
    shutil.copytree(site.data, tmp_path / "data")
    shutil.copy(site.ledger, tmp_path / "ledger.txt")
    url = f"sqlite:///{tmp_path}/data/storm.db"
    installation = Installation(Settings(database_url=url, data_dir=tmp_path / "data"), Database(url))
    mind = Mind()
    for request in requests:
        mind(request)
    yield Scene(installation, tmp_path / "ledger.txt", replace(evidence, mind=mind), requests)
    installation.close()


def test_a_calm_day_has_no_fault(scene: Scene) -> None:
    assert audit(scene.evidence()) == []
    assert scene.evidence().effects


# --- damage: each function does some, and returns the job, or the key, that the recount must name ---


def _delete_a_job(scene: Scene) -> str:
    scene.change(sa.delete(jobs).where(jobs.c.idempotency_key == PLAIN))
    return PLAIN


def _fail_a_job(scene: Scene) -> str:
    return _set(scene, PLAIN, state="failed")


def _lose_a_result(scene: Scene) -> str:
    return _set(scene, PLAIN, result=None)


def _lose_a_message(scene: Scene) -> str:
    job = scene.record(PLAIN)
    result = next(message for message in job.messages if message.role == "tool")
    return _change_message(scene, job, sa.delete(messages), result.seq)


def _lose_a_step(scene: Scene) -> str:
    """Its rows are gone, and the counters know nothing of them."""
    job = scene.record(PLAIN)
    reply = next(message for message in job.messages if "step work.2" in (message.content or ""))
    return _change_message(scene, job, sa.update(messages).values(content="step work.9"), reply.seq)


def _lose_a_comment(scene: Scene) -> str:
    job = scene.record(ASKING)
    scene.change(sa.delete(comments).where(comments.c.job_id == job.id, comments.c.kind == "comment"))
    return job.id


def _hide_a_comment(scene: Scene) -> str:
    job = scene.record(ASKING)
    hidden = sa.update(messages).values(content=sa.func.replace(messages.c.content, "cmt-", "cut-"))
    scene.change(hidden.where(messages.c.job_id == job.id))
    return job.id


def _lose_an_effect(scene: Scene) -> str:
    job = scene.record(PLAIN)
    lines = scene.ledger.read_text().splitlines(keepends=True)
    lost = next(line for line in lines if line.startswith(job.id))
    scene.ledger.write_text("".join(line for line in lines if line != lost))
    return job.id


def _lose_a_subtask(scene: Scene) -> str:
    job = scene.record(FAMILY)
    child = next(r.id for r in scene.calm.records.values() if r.row["parent_id"] == job.id)
    scene.change(sa.delete(jobs).where(jobs.c.id == child))
    return job.id


def _lose_a_summary(scene: Scene) -> str:
    job = scene.record(PLAIN)
    scene.change(
        sa.delete(summaries).where(summaries.c.job_id == job.id),
        sa.update(jobs).where(jobs.c.id == job.id).values(total_summaries=0),
    )
    return job.id


def _tell_no_hook(scene: Scene) -> str:
    job = scene.record(PLAIN)
    scene.calm = replace(scene.calm, told_ends={})
    return job.id


def _answer_a_call_badly(scene: Scene) -> str:
    job = scene.record(PLAIN)
    result = next(message for message in job.messages if message.tool_name == "mark")
    wrong = sa.update(messages).values(is_error=True, content="Error: no.")
    return _change_message(scene, job, wrong, result.seq)


def _double_a_mark(scene: Scene) -> str:
    """The effect of a call that may not be repeated."""
    job = scene.record(PLAIN)
    marks = {c["id"] for m in job.messages for c in m.tool_calls or () if c["name"] == "mark"}
    lines = scene.ledger.read_text().splitlines(keepends=True)
    scene.ledger.write_text("".join([*lines, next(line for line in lines if line.split()[1] in marks)]))
    return job.id


def _double_a_line_of_a_command(scene: Scene) -> str:
    job = scene.record(PLAIN)
    file = workspace_path(scene.installation.settings.data_dir, job.id) / "output" / "effects.txt"
    file.write_text(file.read_text() * 2)
    return job.id


def _run_a_committed_call_again(scene: Scene) -> str:
    """Also one that is harmless to repeat: its result was there."""
    job = scene.record(PLAIN)
    counts = {c["id"] for m in job.messages for c in m.tool_calls or () if c["name"] == "count"}
    lines = scene.ledger.read_text().splitlines(keepends=True)
    line = next(line for line in lines if line.split()[1] in counts).split()
    line[4] = str(float(line[4]) + 60)
    scene.ledger.write_text("".join([*lines, " ".join(line) + "\n"]))
    return job.id


def _double_a_step(scene: Scene) -> str:
    job = scene.record(PLAIN)
    reply = next(message for message in job.messages if "step work.2" in (message.content or ""))
    return _change_message(scene, job, sa.update(messages).values(content="step work.1"), reply.seq)


def _double_a_movement(scene: Scene) -> str:
    job = scene.record(PLAIN)
    begun = [message for message in job.messages if message.role == "system"]
    return _change_message(scene, job, sa.update(messages).values(extra=begun[0].extra), begun[1].seq)


def _ask_for_a_committed_step_again(scene: Scene) -> str:
    job = scene.record(PLAIN)
    scene.calm.mind(next(request for request in scene.requests if request.label.startswith(job.id)))
    return job.id


def _consume_a_comment_twice(scene: Scene) -> str:
    job = scene.record(ASKING)
    (token,) = {found for message in job.messages for found in COMMENT.findall(message.content or "")}
    answer = next(message for message in job.messages if token in (message.content or ""))
    other = next(m for m in job.messages if m.tool_name == "transition" and m.seq != answer.seq)
    return _change_message(scene, job, sa.update(messages).values(content=token), other.seq)


def _submit_twice(scene: Scene) -> str:
    other = scene.record(ASKING).id
    scene.change(sa.update(jobs).where(jobs.c.id == other).values(idempotency_key=PLAIN, owner="another"))
    return PLAIN


def _begin_a_subtask_twice(scene: Scene) -> str:
    job = scene.record(FAMILY)
    scene.change(sa.update(jobs).where(jobs.c.idempotency_key == PLAIN).values(parent_id=job.id))
    return job.id


def _let_two_runs_live(scene: Scene) -> str:
    job = scene.record(FAMILY)  # waits for its parts: two runs at least
    late = job.runs[1]["claimed_at"] + 60
    scene.change(sa.update(runs).where(runs.c.id == job.runs[0]["id"]).values(ended_at=late))
    return job.id


def _leave_a_job_open(scene: Scene) -> str:
    return _set(scene, PLAIN, state="queued", completed_at=None)


def _leave_a_summary_pending(scene: Scene) -> str:
    return _set(scene, PLAIN, summary_state="pending")


def _leave_a_run_open(scene: Scene) -> str:
    job = scene.record(PLAIN)
    last = [run for run in job.runs if run["kind"] == "agent"][-1]
    scene.change(sa.update(runs).where(runs.c.id == last["id"]).values(ended_at=None))
    return job.id


def _set(scene: Scene, token: str, **values: object) -> str:
    job = scene.record(token)
    scene.change(sa.update(jobs).where(jobs.c.id == job.id).values(**values))
    return job.id


def _change_message(scene: Scene, job: JobRecord, change: sa.Update | sa.Delete, seq: int) -> str:
    scene.change(change.where(messages.c.job_id == job.id, messages.c.seq == seq))
    return job.id


DAMAGES: dict[str, list[Callable[[Scene], str]]] = {
    LOST: [
        _delete_a_job,
        _fail_a_job,
        _lose_a_result,
        _lose_a_message,
        _lose_a_step,
        _lose_a_comment,
        _hide_a_comment,
        _lose_an_effect,
        _lose_a_subtask,
        _lose_a_summary,
        _tell_no_hook,
        _answer_a_call_badly,
    ],
    REPEATED: [
        _double_a_mark,
        _double_a_line_of_a_command,
        _run_a_committed_call_again,
        _double_a_step,
        _double_a_movement,
        _ask_for_a_committed_step_again,
        _consume_a_comment_twice,
        _submit_twice,
        _begin_a_subtask_twice,
        _let_two_runs_live,
    ],
    STUCK: [_leave_a_job_open, _leave_a_summary_pending, _leave_a_run_open],
}


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        pytest.param(kind, damage, id=f"{kind}: {damage.__name__.strip('_')}")
        for kind, found in DAMAGES.items()
        for damage in found
    ],
)
def test_damage_is_found(scene: Scene, kind: str, damage: Callable[[Scene], str]) -> None:
    named = damage(scene)
    assert named in {fault.job_id for fault in audit(scene.evidence()) if fault.kind == kind}
