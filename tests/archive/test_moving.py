"""A job goes on in another installation, on the other database, with all it had: once, and nowhere else."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from jobs.archive.exporting import Archive, with_subtasks
from jobs.archive.moving import hold, move_jobs
from jobs.comments import add_comment, reply
from jobs.errors import IllegalTransition, UsageError
from jobs.installation import Installation
from jobs.lifecycle import Budget, pause, resume
from jobs.reasons import Reason
from jobs.states import State
from jobs.submit import SubmitRequest, submit
from jobs.views import get_job, list_messages
from jobs.workspace import InputFile
from tests.archive.conftest import knowing_piece
from tests.archive.making import export, files_of, rich_job, root_of, some_jobs, take, workspace
from tests.crash.bench import PIECE
from tests.factories import claim_job, job_now, make_job
from tests.servers.redis import RedisServer
from tests.servers.workers import CommandFactory, CommandProcess
from tests.strict_endpoint import Call, ChatRequest, Reply, StrictEndpoint
from tests.waiting import wait_until

REPLIES = [
    Reply(calls=(Call("Bash", {"command": "cat input/facts.txt > output/a; echo once >> output/effects"}),)),
    Reply(calls=(Call("Bash", {"command": "cat output/a; echo then >> output/effects"}),)),
    Reply(calls=(Call("transition", {"next_step": "finish", "summary": "written"}),)),
    Reply(calls=(Call("transition", {"next_step": "COMPLETE", "summary": "all done"}),)),
]


def move(home: Installation, archive: Path, *job_ids: str, wait: float = 60.0) -> None:
    with Archive(home, archive, lambda problem: pytest.fail(str(problem))) as opened:
        move_jobs(
            home, opened, with_subtasks(home, job_ids), actor="local", wait_seconds=wait, told=lambda _: None
        )


def worker_at(
    home: Installation, commands: CommandFactory, endpoint: StrictEndpoint, broker: RedisServer
) -> CommandProcess:
    env = {
        "SOSTENUTO_DATABASE_URL": home.settings.database_url,
        "SOSTENUTO_DATA_DIR": str(home.settings.data_dir),
        "SOSTENUTO_BROKER_URL": broker.url,
        "OPENAI_BASE_URL": endpoint.url,
        "SOSTENUTO_MODEL": "strict",
        "SOSTENUTO_SWEEP_SECONDS": "0.2",
        "SOSTENUTO_CONTEXT_FINAL_SUMMARY_ENABLED": "false",
    }
    return commands("--concurrency", "2", env=env)


def test_a_job_that_is_moved_in_the_middle_of_its_work_goes_on_there(
    here: Installation,
    there: Installation,
    tmp_path: Path,
    worker_process: CommandFactory,
    valkey_server: RedisServer,
) -> None:
    """Its workspace, comments, conversation and frozen piece come with it; nothing is asked or done twice."""
    at_home = knowing_piece(here, tmp_path, PIECE)

    def mind(request: ChatRequest) -> Reply:
        finishing = "Movement: finish" in str(request.messages[0]["content"])
        return REPLIES[3] if finishing else REPLIES[request.replies]

    with StrictEndpoint(mind) as endpoint:
        gate = endpoint.hold()
        files = [InputFile("facts.txt", b"six times seven\n")]
        job_id = submit(at_home, SubmitRequest("Do it.", piece="crash", files=files), "local").job.id
        worker = worker_at(here, worker_process, endpoint, valkey_server)
        gate.wait_held(1)
        add_comment(here, job_id, "local", "Mind the moon.", "local")
        moving = threading.Thread(target=move, args=(here, tmp_path / "parcel", job_id))
        moving.start()
        wait_until(lambda: job_now(here.db, job_id)["pause_requested"], 60, "the move asks for a pause")
        gate.release()
        moving.join()
        closed = get_job(here, job_id, None)
        assert (closed.state, closed.reason) == (State.CANCELLED, Reason.MOVED)
        calls = endpoint.calls(job_id + "/*")

        jobs, problems = take(there, tmp_path / "parcel", all_to="ann")
        assert (problems, [job.outcome for job in jobs], jobs[0].anew) == ([], ["imported"], False)
        worker_at(there, worker_process, endpoint, valkey_server)
        wait_until(lambda: get_job(there, job_id, None).state == State.SUCCEEDED, 120, "it ends there")
        worker.term()

        ended = get_job(there, job_id, "ann")
        assert (ended.result, ended.owner, ended.unread_comments) == ("all done", "ann", 0)
        assert endpoint.calls(job_id + "/*") == len(REPLIES) > calls >= 1
        endpoint.assert_clean()
    assert (root_of(there, job_id) / "output/effects").read_text() == "once\nthen\n"
    messages = list_messages(there, job_id)
    assert [message.seq for message in messages] == list(range(1, len(messages) + 1))
    assert (
        sum("Mind the moon." in (message.content or "") for message in messages if message.kind == "gap") == 1
    )
    assert any("six times seven" in (message.content or "") for message in messages if message.role == "tool")
    assert get_job(here, job_id, None).state == State.CANCELLED


def test_a_family_moves_as_one_each_in_the_state_that_it_had(
    here: Installation, there: Installation, tmp_path: Path
) -> None:
    """A parent that waits for its subtasks, one of them paused by a person, another one that asks; none may go alone."""
    parent = make_job(here.db, State.WAITING_SUBTASKS, children_open=2, children_total=3)
    held = make_job(here.db, State.PAUSED, parent_id=parent, depth=1)
    due = make_job(here.db, State.QUEUED, parent_id=parent, depth=1)
    make_job(here.db, State.SUCCEEDED, parent_id=parent, depth=1)
    family = with_subtasks(here, [parent])
    with pytest.raises(UsageError, match="subtask"):
        move(here, tmp_path / "one", held)
    assert job_now(here.db, held)["reason"] == Reason.PAUSED_BY_USER

    move(here, tmp_path / "one", parent)

    for job_id in (parent, held, due):
        row = job_now(here.db, job_id)
        assert (row["state"], row["reason"], row["children_open"]) == (State.CANCELLED, Reason.MOVED, 0)
    jobs, problems = take(there, tmp_path / "one")
    assert problems == []
    assert {job.job_id for job in jobs} == set(family)
    states = {job_id: job_now(there.db, job_id)["state"] for job_id in (parent, held, due)}
    assert states == {parent: State.WAITING_SUBTASKS, held: State.PAUSED, due: State.QUEUED}
    assert job_now(there.db, parent)["children_open"] == 2
    assert job_now(there.db, held)["reason"] == Reason.PAUSED_BY_USER


def test_what_was_begun_is_finished_and_what_a_person_took_back_goes_on(
    here: Installation, tmp_path: Path
) -> None:
    """The mover dies after it held the jobs: nothing runs; one is answered meanwhile, one is resumed."""
    asks, queued = some_jobs(here), make_job(here.db, State.QUEUED)
    (asking,) = [job_id for job_id in asks if job_now(here.db, job_id)["state"] == State.WAITING_HUMAN]
    for job_id in (asking, queued):
        hold(here, job_id, "local", 1.0)
        workspace(here, job_id) if job_id == queued else None
    assert get_job(here, asking, None).reason == Reason.MOVING
    reply(here, asking, "local", "blue", "local")
    resume(here, queued, None, "ann", Budget())
    with pytest.raises(AssertionError):
        claim_job(here.db, asking)

    move(here, tmp_path / "one", asking)

    assert job_now(here.db, queued)["state"] == State.QUEUED
    (folder,) = (tmp_path / "one/contexts/running").iterdir()
    assert folder.name == asking
    assert '"state":"queued"' in (folder / "sostenuto/job.json").read_text()
    with pytest.raises(IllegalTransition):
        resume(here, asking, None, "ann", Budget())


def test_importing_twice_changes_nothing_and_another_job_of_the_id_is_refused(
    here: Installation, there: Installation, tmp_path: Path
) -> None:
    """The job may have gone on meanwhile; one whose words are others is not it. The rest of the archive comes."""
    ids = some_jobs(here)
    export(here, tmp_path / "one", ids)
    take(there, tmp_path / "one")
    running = next(job_id for job_id in ids if job_now(there.db, job_id)["state"] == State.QUEUED)
    pause(there, running, None, "ann")
    export(there, tmp_path / "before", ids)

    jobs, problems = take(there, tmp_path / "one")

    assert problems == []
    assert {job.outcome for job in jobs} == {"already_here"}
    export(there, tmp_path / "after", ids)
    assert files_of(tmp_path / "before") == files_of(tmp_path / "after")
    (changed,) = (tmp_path / "one/contexts").glob(f"*/{rich(here, ids)}")
    text = (changed / "messages.jsonl").read_text()
    (changed / "messages.jsonl").write_text(text.replace("Count the stars", "Count the cars"))
    fresh = rich_job(here).job_id
    export(here, tmp_path / "one", [fresh])
    jobs, _ = take(there, tmp_path / "one")
    assert {job.job_id: job.outcome for job in jobs if job.outcome != "already_here"} == {
        changed.name: "refused", fresh: "imported",
    }  # fmt: skip


def rich(home: Installation, ids: list[str]) -> str:
    """One of these with a conversation."""
    return next(job_id for job_id in ids if job_now(home.db, job_id)["total_messages"] > 5)


def test_a_parent_whose_subtasks_did_not_come_waits_for_none(
    here: Installation, there: Installation, tmp_path: Path
) -> None:
    """And a subtask whose parent did not come stands alone."""
    parent = make_job(here.db, State.WAITING_SUBTASKS, children_open=1, children_total=1)
    child = make_job(here.db, State.PAUSED, parent_id=parent, depth=1)
    workspace(here, parent), workspace(here, child)
    export(here, tmp_path / "parent", [parent])
    export(here, tmp_path / "child", [child])
    take(there, tmp_path / "parent")
    row = job_now(there.db, parent)
    assert (row["state"], row["reason"], row["children_open"]) == (State.QUEUED, Reason.SUBTASKS_DONE, 0)
    job_id = make_job(here.db, State.PAUSED, parent_id=make_job(here.db, State.CANCELLED), depth=1)
    workspace(here, job_id)
    export(here, tmp_path / "child", [job_id])
    _, problems = take(there, tmp_path / "child")
    assert [text.partition(": ")[2] for text in problems] == [problems[0].partition(": ")[2]]
    assert "it stands alone now" in problems[0]
    assert job_now(there.db, job_id)["parent_id"] is None
