"""Submitting, reading, following and controlling jobs from the command line, over a real SQLite database."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import PROGRAM, Agent, Cli, returned, said


def submit(cli: Cli, *arguments: str) -> str:
    """The id of a new job: in a pipe it is all that `submit` prints."""
    outcome = cli("submit", *arguments)
    assert (outcome.code, outcome.err) == (0, "")
    return outcome.out.strip()


def test_submit_in_a_pipe_prints_the_id_and_nothing_else(cli: Cli) -> None:
    job_id = submit(cli, "do it")
    shown = cli("show", job_id, "--json").data
    assert (shown["id"], shown["state"], shown["piece"], shown["title"]) == (
        job_id,
        "queued",
        "general",
        "do it",
    )


def test_submit_takes_every_field(cli: Cli, folder: Path) -> None:
    (folder / "data.csv").write_text("a,b\n", encoding="utf-8")
    outcome = cli(
        "submit", "sum it", "--piece", "general", "--file", "data.csv", "--repo", "owner/x", "--task-type", "issue",
        "--task-id", "7", "--user", "ann", "--key", "k1", "--priority", "5", "--at", "+2h", "--max-steps", "9",
        "--max-tokens", "1000", "--max-cost", "1.5", "--max-time", "30m", "--model", "scripted:replies.yaml", "--json",
    )  # fmt: skip
    assert outcome.data["created"] is True
    job = outcome.data["job"]
    assert job["budget"] == {"max_steps": 9, "max_tokens": 1000, "max_cost": 1.5, "max_seconds": 1800}
    assert (job["repository"], job["task_type"], job["task_identifier"], job["user"]) == (
        "owner/x",
        "issue",
        "7",
        "ann",
    )
    assert (job["priority"], job["reason"], job["model"]) == (
        5,
        "scheduled",
        f"scripted:{folder}/replies.yaml",
    )
    assert [file["path"] for file in cli("files", "list", job["id"], "--json").data["files"]] == [
        "input/data.csv"
    ]


def test_the_same_key_gives_the_same_job(cli: Cli) -> None:
    first = cli("submit", "do it", "--key", "k", "--json").data
    second = cli("submit", "do it", "--key", "k", "--json").data
    assert (first["created"], second["created"]) == (True, False)
    assert first["job"]["id"] == second["job"]["id"]


def test_too_many_waiting_jobs_have_an_exit_code(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOSTENUTO_LIMITS_MAX_QUEUED", "1")
    first = cli("submit", "Do it.", "--key", "k")
    refused = cli("submit", "Do it.", "--json")
    assert (refused.code, refused.error["type"]) == (8, "TooManyQueued")
    assert cli("submit", "Do it.", "--key", "k").out == first.out


def test_the_instruction_comes_from_stdin(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("長い指示\nmore".encode())))
    assert cli("show", submit(cli, "-"), "--json").data["title"] == "長い指示"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\xff\xfe", "InvalidInstruction"),
        (b"x" * 10_000_000, "InvalidInstruction"),
        (b"  \n", "InvalidInstruction"),
    ],
    ids=["not UTF-8", "10 MB", "blank"],
)
def test_a_bad_instruction_on_stdin_is_refused(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, data: bytes, kind: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    outcome = cli("submit", "-", "--json")
    assert (outcome.code, outcome.error["type"]) == (2, kind)
    assert cli("list", "--json").data == {"jobs": [], "next": None}


def test_list_is_tab_separated_in_a_pipe_newest_first(cli: Cli) -> None:
    ids = [submit(cli, f"job\t{number}") for number in range(3)]
    rows = [line.split("\t") for line in cli("list").out.splitlines()]
    assert [row[0] for row in rows] == ids[::-1]
    assert [len(row) for row in rows] == [5, 5, 5]
    assert rows[0][4] == "job 2"


def test_list_pages_and_filters(cli: Cli) -> None:
    ids = [submit(cli, "x") for _ in range(3)]
    cli("cancel", ids[0])
    page = cli("list", "--limit", "2", "--json").data
    assert ([job["id"] for job in page["jobs"]], page["next"]) == (ids[:0:-1], ids[1])
    rest = cli("list", "--before", page["next"], "--json").data
    assert ([job["id"] for job in rest["jobs"]], rest["next"]) == (ids[:1], None)
    found = cli("list", "--state", "cancelled", "--state", "failed", "--json").data["jobs"]
    assert [job["id"] for job in found] == ids[:1]


def test_a_job_is_meant_by_a_unique_beginning_or_end(cli: Cli) -> None:
    job_id = submit(cli, "x")
    assert cli("show", job_id[:6], "--json").data["id"] == job_id
    assert cli("show", job_id[-8:], "--json").data["id"] == job_id
    submit(cli, "y")
    outcome = cli("show", job_id[:6], "--json")
    assert (outcome.code, outcome.error["type"]) == (2, "AmbiguousJobId")
    assert job_id in outcome.error["message"]


def test_show_tells_state_reason_and_what_is_next(cli: Cli, agent: Agent) -> None:
    job_id = submit(cli, "x")
    agent.ask(agent.claim(job_id), "Which one?")
    out = cli("show", job_id).out
    assert "waiting_human: asks a person: Which one?" in out
    assert f'answer with: sostenuto reply {job_id} "…"' in out
    assert out.endswith("question\nWhich one?\n")


def test_the_whole_life_of_a_question(cli: Cli, agent: Agent) -> None:
    job_id = submit(cli, "x")
    agent.ask(agent.claim(job_id), "Which one?")
    assert cli("reply", job_id, "the first", "--json").data["answers_call"] == "c1"
    assert cli("show", job_id, "--json").data["state"] == "queued"
    assert cli("reply", job_id, "again").code == 4


def test_pause_resume_cancel_retry(cli: Cli) -> None:
    job_id = submit(cli, "x")
    assert cli("pause", job_id, "--json").data["state"] == "paused"
    resumed = cli("resume", job_id, "--max-steps", "3", "--json").data
    assert (resumed["state"], resumed["budget"]["max_steps"]) == ("queued", 3)
    assert cli("cancel", job_id).out.splitlines()[0] == f"{job_id} cancelled by local"
    assert cli("resume", job_id).code == 4
    assert cli("retry", job_id, "--json").data["state"] == "queued"


def test_comments_are_numbered(cli: Cli) -> None:
    job_id = submit(cli, "x")
    assert cli("comment", job_id, "one").out == f"comment 1 for {job_id}\n"
    assert cli("comment", job_id, "two", "--json").data["number"] == 2
    assert cli("comment", job_id, " ").code == 2


def test_files_go_in_and_out(cli: Cli, folder: Path) -> None:
    job_id = submit(cli, "x")
    (folder / "a.bin").write_bytes(b"\x00\xff")
    assert cli("files", "put", job_id, "a.bin").out == "input/a.bin\n"
    assert cli("files", "put", job_id, "a.bin", "output/deep/b.bin", "--json").data["size"] == 2
    assert cli("files", "list", job_id).out == "input/a.bin\t2\noutput/deep/b.bin\t2\n"
    assert cli("files", "get", job_id, "output/deep/b.bin").code == 0
    assert (folder / "b.bin").read_bytes() == b"\x00\xff"
    assert cli("files", "get", job_id, "output/deep/b.bin").code == 2, (
        "an existing file is not replaced unasked"
    )
    assert cli("files", "get", job_id, "output/deep/b.bin", "--force").code == 0
    assert cli("files", "get", job_id, "output/none").code == 3
    assert cli("files", "put", job_id, "a.bin", "logs/x").code == 2
    assert cli("files", "get", job_id, "../../sostenuto.db", "--to", "stolen").code == 2
    assert not (folder / "stolen").exists()


def test_files_get_writes_bytes_to_stdout(cli: Cli, folder: Path) -> None:
    (folder / "a.bin").write_bytes(b"\x00\xff\x1b")
    job_id = submit(cli, "x", "--file", "a.bin")
    command = [*PROGRAM, "files", "get", job_id, "input/a.bin", "--to", "-"]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"\x00\xff\x1b"


HOSTILE = "\x1b]52;c;aGk=\x07\x9b31m\u202eevil\r\nnext \x00"


def test_what_a_model_wrote_cannot_steer_the_terminal(cli: Cli, agent: Agent) -> None:
    job_id = submit(cli, HOSTILE)
    run = agent.claim(job_id)
    agent.commit(run, said(HOSTILE, ("c1", f"Bash{HOSTILE}", f'{{"command": "{HOSTILE}"}}')))
    agent.commit(run, returned("c1", f"Bash{HOSTILE}", HOSTILE))
    agent.succeed(run, HOSTILE)
    for command in (["list"], ["show", job_id], ["watch", job_id], ["transcript", job_id, "--full"]):
        for json_too in ([], ["--json"]):
            out = cli(*command, *json_too).out
            assert out
            assert not [char for char in out if char in "\x00\x07\x1b\x9b\r\u202e"], command
    assert "␛]52;c;aGk=␇\\x9b31m\\u202eevil\nnext ␀" in cli("show", job_id).out
    assert cli("show", job_id, "--json").data["result"] == HOSTILE.replace("\0", "␀"), "JSON keeps it exactly"


def test_the_transcript_comes_whole_in_pages_or_cut(
    cli: Cli, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.cli.reading._PAGE", 2)
    job_id = submit(cli, "x")
    run = agent.claim(job_id)
    for number in range(5):
        agent.commit(run, said(f"message {number} " + "x" * 3000))
    everything = cli("transcript", job_id, "--json").data["messages"]
    assert [message["seq"] for message in everything] == [1, 2, 3, 4, 5]
    some = cli("transcript", job_id, "--after", "1", "--limit", "3", "--json").data["messages"]
    assert [message["seq"] for message in some] == [2, 3, 4]
    assert "… 1,010 more characters (--full)" in cli("transcript", job_id).out
    assert "more characters" not in cli("transcript", job_id, "--full").out


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`meanwhile(act, act…)`: what happens, one after the other, each time the follower would sleep."""

    def plan(*acts: Callable[[], None]) -> None:
        left = list(acts)
        monkeypatch.setattr("jobs.cli.following.sleep", lambda _: left.pop(0)())

    return plan


def test_watch_shows_each_thing_once_and_ends_with_the_job(
    cli: Cli, agent: Agent, meanwhile: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.cli.following._PAGE", 2)
    job_id = submit(cli, "x")
    run = agent.claim(job_id)

    def burst() -> None:
        agent.commit(run, returned("c1", "Read", "text"))
        for number in range(5):
            agent.commit(run, said(f"message {number}"))

    meanwhile(
        lambda: agent.commit(run, said("looking", ("c1", "Read", "{}"))),
        burst,
        lambda: agent.succeed(run, "done"),
    )
    outcome = cli("watch", job_id, "--json")
    lines = [json.loads(line) for line in outcome.out.splitlines()]
    assert [line["seq"] for line in lines if line["type"] == "message"] == list(range(1, 9))
    assert [line["kind"] for line in lines if line["type"] == "event"] == ["submit", "claim", "succeed"]
    assert (lines[-1]["type"], lines[-1]["state"], lines[-1]["result"]) == ("job", "succeeded", "done")
    assert outcome.code == 0


def test_watch_ends_where_a_person_is_needed(cli: Cli, agent: Agent, meanwhile: Callable[..., None]) -> None:
    job_id = submit(cli, "x")
    meanwhile(lambda: agent.ask(agent.claim(job_id), "Which one?"))
    outcome = cli("watch", job_id, "--exit-status")
    assert outcome.code == 7
    assert "waiting_human: asks a person: Which one?" in outcome.out
    assert outcome.err.startswith(f"error: job {job_id}: waiting_human")


def test_submit_wait_follows_to_success(cli: Cli, agent: Agent, meanwhile: Callable[..., None]) -> None:
    def work() -> None:
        agent.succeed(agent.claim(cli_job()), "42")

    def cli_job() -> str:
        from jobs.settings import Settings
        from storage.engine import Database
        from storage.listing import list_jobs

        db = Database(Settings(data_dir=Path("sostenuto-data")).database_url)
        (row,) = list_jobs(db, "local", None, 2, None)
        db.close()
        return str(row["id"])

    meanwhile(work)
    outcome = cli("submit", "x", "--wait", "--json")
    assert (outcome.code, outcome.data["state"], outcome.data["result"]) == (0, "succeeded", "42")


def test_interrupting_a_watch_leaves_the_job_alone(cli: Cli, meanwhile: Callable[..., None]) -> None:
    job_id = submit(cli, "x")

    def press_ctrl_c() -> None:
        raise KeyboardInterrupt

    meanwhile(press_ctrl_c)
    outcome = cli("watch", job_id)
    assert outcome.code == 130
    assert "Traceback" not in outcome.err
    assert cli("show", job_id, "--json").data["state"] == "queued"
