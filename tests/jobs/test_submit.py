"""Submitting: checked first, then files, then the row, then the wake-up; nothing is left of what was refused."""

from __future__ import annotations

import importlib
import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import pytest
import sqlalchemy as sa

from jobs.errors import FileRejected, InvalidInstruction, StorageError, UnknownPiece, UsageError
from jobs.installation import Installation
from jobs.lifecycle import Budget
from jobs.pieces import thaw
from jobs.reasons import Reason
from jobs.settings import BudgetSettings, Settings
from jobs.states import State
from jobs.submit import SubmitRequest, submit
from jobs.views import get_job, list_events, list_jobs
from jobs.wakeups import AGENT_QUEUE, WakeUpPublisher
from jobs.workspace import InputFile, workspace_path
from storage import jobs as store
from storage.engine import Database
from storage.errors import DatabaseUnavailable
from storage.jobs import get_inputs
from storage.models import jobs
from storage.runs import take_unwoken_jobs
from tests import factories
from tests.factories import OWNER
from tests.servers.redis import RedisServer


def _folders(installation: Installation) -> list[str]:
    root = installation.settings.data_dir / "workspaces"
    return sorted(entry.name for entry in root.iterdir()) if root.exists() else []


def _count(db: Database) -> int:
    with db.read() as conn:
        return conn.execute(sa.select(sa.func.count()).select_from(jobs)).scalar_one()


def test_a_job_is_accepted_whole(installation: Installation, db: Database) -> None:
    request = SubmitRequest(
        "  \n  Write a poem. \nAbout rain.", files=[InputFile("a/b.txt", b"wet")], task_type="poem",
        task_identifier="7", repository="r", user="ann", idempotency_key="k", priority=5, model="m",
        budget=Budget(max_steps=3, max_cost=0.5), metadata={"a": [1, None]},
    )  # fmt: skip
    receipt = submit(installation, request, OWNER)
    assert (receipt.created, receipt.woken) == (True, False)
    view = receipt.job
    assert view == get_job(installation, view.id, OWNER)
    assert (view.state, view.reason, view.title) == (State.QUEUED, Reason.NEW, "Write a poem.")
    assert (view.piece, view.priority, view.model, view.owner) == ("general", 5, "m", OWNER)
    assert (view.task_type, view.task_identifier, view.repository, view.user) == ("poem", "7", "r", "ann")
    assert view.metadata == {"a": [1, None]}
    assert view.budget == {"max_steps": 3, "max_tokens": None, "max_cost": 0.5, "max_seconds": None}
    instruction, piece = get_inputs(db, view.id)
    assert instruction == request.instruction
    assert thaw(piece).initial_movement == view.movement
    folder = workspace_path(installation.settings.data_dir, view.id)
    assert (folder / "input/a/b.txt").read_bytes() == b"wet"
    (event,) = list_events(installation, view.id)
    assert (event.kind, event.seq, event.actor, event.from_state, event.to_state) == (
        "submit", 1, OWNER, None, State.QUEUED,
    )  # fmt: skip
    assert event.data is not None
    assert event.data["piece"] == "general"
    factories.claim_job(db, view.id)


def test_the_settings_budget_holds_where_the_submitter_names_none(migrated_url: str, tmp_path: Path) -> None:
    settings = Settings(
        data_dir=tmp_path / "data",
        database_url=migrated_url,
        broker_url=f"redis+socket://{tmp_path}/none",
        budget=BudgetSettings(max_steps=9, max_tokens=100),
    )
    installation = Installation(settings, Database(settings.database_url))
    view = submit(installation, SubmitRequest("x", budget=Budget(max_steps=2)), OWNER).job
    installation.close()
    assert view.budget == {"max_steps": 2, "max_tokens": 100, "max_cost": None, "max_seconds": None}


BAD: list[tuple[type[UsageError], str, dict[str, Any]]] = [
    (InvalidInstruction, "empty", {"instruction": ""}),
    (InvalidInstruction, "empty", {"instruction": " \n\t "}),
    (InvalidInstruction, "1,000,001", {"instruction": "x" * 1_000_001}),
    (UsageError, "priority 1001", {"priority": 1001}),
    (UsageError, "priority -1001", {"priority": -1001}),
    (UsageError, "idempotency key", {"idempotency_key": ""}),
    (UsageError, "idempotency key", {"idempotency_key": "k" * 201}),
    (UsageError, "task_type is longer", {"task_type": "t" * 501}),
    (UsageError, "user is longer", {"user": "t" * 501}),
    (UsageError, "max_steps is 0", {"budget": Budget(max_steps=0)}),
    (UsageError, "max_cost", {"budget": Budget(max_cost=math.inf)}),
    (UsageError, "max_tokens", {"budget": Budget(max_tokens=2**63)}),
    (UsageError, "available_at", {"available_at": math.nan}),
    (UsageError, "available_at", {"available_at": math.inf}),
    (UsageError, "available_at", {"available_at": -1.0}),
    (UsageError, "metadata", {"metadata": {"a": object()}}),
    (UnknownPiece, "no piece 'genera'", {"piece": "genera"}),
    (FileRejected, "secret", {"files": [InputFile("../secret", b"")]}),
    (FileRejected, "two files", {"files": [InputFile("a", b"1"), InputFile("a", b"2")]}),
    (FileRejected, "cannot read", {"files": [InputFile("a", b"1"), InputFile("b", Path("/no such file"))]}),
]


def test_what_is_refused_says_so_in_one_line_and_leaves_nothing(
    installation: Installation, db: Database
) -> None:
    """A due time that is no number was stored, and every later listing failed on it."""
    for kind, words, fields in BAD:
        request = SubmitRequest(**({"instruction": "x"} | fields))
        with pytest.raises(kind, match=words) as caught:
            submit(installation, request, OWNER)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 300
    assert _folders(installation) == []
    assert _count(db) == 0
    assert list_jobs(installation, OWNER) == []


def test_the_first_line_is_the_title(installation: Installation) -> None:
    for instruction, title in (
        ("\n\n  one \n two", "one"),
        ("x" * 120, "x" * 120),
        ("x" * 121, "x" * 119 + "…"),
        ("a\0b\ud83d", "a␀b\ufffd"),
    ):
        assert submit(installation, SubmitRequest(instruction), OWNER).job.title == title


def test_a_due_time(installation: Installation, db: Database) -> None:
    later = db.clock() + 3600
    view = submit(installation, SubmitRequest("x", available_at=later), OWNER).job
    assert (view.state, view.reason, view.available_at) == (State.QUEUED, Reason.SCHEDULED, later)
    assert view.reason_text is not None
    assert view.reason_text.startswith("scheduled for 20")
    assert take_unwoken_jobs(db, State.QUEUED, 0.0, 10) == []
    past = submit(installation, SubmitRequest("x", available_at=1.0), OWNER).job
    assert past.reason == Reason.NEW
    assert past.available_at > 1.0  # a time that is past means now, not a place before all others
    factories.claim_job(db, past.id)


# --- the same key ---


def test_the_same_key_is_the_same_job(installation: Installation, db: Database) -> None:
    first = submit(installation, SubmitRequest("one", idempotency_key="k"), OWNER)
    again = submit(installation, SubmitRequest("other", idempotency_key="k"), OWNER)
    assert (first.created, again.created, again.woken) == (True, False, False)
    assert again.job == first.job
    assert submit(installation, SubmitRequest("one", idempotency_key="k"), "eve").created
    strange = [submit(installation, SubmitRequest("x", idempotency_key="k\0\ud83d"), OWNER) for _ in range(2)]
    assert [receipt.created for receipt in strange] == [True, False]
    assert len(_folders(installation)) == _count(db) == 3


def test_the_same_key_200_times_at_once_is_one_job(installation: Installation, db: Database) -> None:
    start = threading.Barrier(10)

    def submit_many(_: int) -> list[tuple[str, bool]]:
        start.wait(30)
        receipts = [submit(installation, SubmitRequest("x", idempotency_key="k"), OWNER) for _ in range(20)]
        return [(receipt.job.id, receipt.created) for receipt in receipts]

    with ThreadPoolExecutor(10) as pool:
        told = [each for found in pool.map(submit_many, range(10)) for each in found]
    assert len(told) == 200
    assert len({job_id for job_id, _ in told}) == 1
    assert sum(created for _, created in told) == 1
    assert _count(db) == 1
    assert _folders(installation) == [told[0][0]]


# --- the order of things ---


def test_the_files_are_on_disk_before_the_row(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    insert = store.insert_job

    def look_first(db: Database, values: dict[str, Any], *rest: Any, **more: Any) -> Any:
        folder = workspace_path(installation.settings.data_dir, values["id"])
        seen.append((folder / "input/a.txt").read_bytes())
        return insert(db, values, *rest, **more)

    monkeypatch.setattr(store, "insert_job", look_first)
    submit(installation, SubmitRequest("x", files=[InputFile("a.txt", b"here")]), OWNER)
    assert seen == [b"here"]


def test_a_commit_that_failed_leaves_no_folder(
    installation: Installation, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **_more: Any) -> NoReturn:
        raise DatabaseUnavailable("gone")

    monkeypatch.setattr(store, "insert_job", fail)
    with pytest.raises(StorageError, match="gone"):
        submit(installation, SubmitRequest("x", files=[InputFile("a.txt", b"here")]), OWNER)
    assert _folders(installation) == []
    assert _count(db) == 0


def test_a_commit_whose_answer_was_lost_keeps_its_files(
    installation: Installation, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is there and a worker may have it already: without its folder the job could not run."""
    insert = store.insert_job

    def lose_the_answer(*given: Any, **more: Any) -> NoReturn:
        insert(*given, **more)
        raise DatabaseUnavailable("the connection was cut")

    monkeypatch.setattr(store, "insert_job", lose_the_answer)
    with pytest.raises(StorageError):
        submit(
            installation, SubmitRequest("x", files=[InputFile("a.txt", b"here")], idempotency_key="k"), OWNER
        )
    monkeypatch.undo()
    assert _count(db) == len(_folders(installation)) == 1
    assert not submit(installation, SubmitRequest("x", idempotency_key="k"), OWNER).created


# --- the broker ---


@pytest.fixture
def over_valkey(tmp_path: Path, valkey_server: RedisServer) -> Iterator[Installation]:
    """An installation on SQLite whose broker is a Valkey of the test's own."""
    from storage.migrate import upgrade

    # A submitter waits a second for the broker's answer: on a busy machine the imports alone may take it.
    for module in ("celery.app.amqp", "celery.app.task", "kombu.transport.redis"):
        importlib.import_module(module)
    settings = Settings(data_dir=tmp_path / "data", broker_url=valkey_server.url)
    opened = Installation(settings, Database(settings.database_url))
    upgrade(opened.db)
    yield opened
    valkey_server.thaw()
    opened.close()


def _messages(server: RedisServer) -> int:
    client = server.client()
    count = client.llen(AGENT_QUEUE)
    client.close()
    assert isinstance(count, int)
    return count


def test_a_submitted_job_is_told_to_the_broker(over_valkey: Installation, valkey_server: RedisServer) -> None:
    assert submit(over_valkey, SubmitRequest("x"), OWNER).woken
    assert _messages(valkey_server) == 1
    later = SubmitRequest("x", available_at=over_valkey.db.clock() + 60)
    assert not submit(over_valkey, later, OWNER).woken
    assert _messages(valkey_server) == 1


@pytest.mark.parametrize("how", ["killed", "frozen"])
@pytest.mark.parametrize("used", ["before", "never"])
def test_a_broker_that_is_away_costs_no_job(
    over_valkey: Installation, valkey_server: RedisServer, how: str, used: str
) -> None:
    """Submit returns with the job committed and says that nobody was woken; when the broker is back, so is it."""
    if used == "before":
        assert submit(over_valkey, SubmitRequest("x"), OWNER).woken
    (valkey_server.kill if how == "killed" else valkey_server.freeze)()
    receipts = [submit(over_valkey, SubmitRequest("x"), OWNER) for _ in range(2)]
    assert [(receipt.created, receipt.woken) for receipt in receipts] == [(True, False)] * 2
    for receipt in receipts:
        assert get_job(over_valkey, receipt.job.id, OWNER).state == State.QUEUED
    (valkey_server.start if how == "killed" else valkey_server.thaw)()
    _wait_until_idle(over_valkey.wakeups)
    assert submit(over_valkey, SubmitRequest("x"), OWNER).woken
    assert _messages(valkey_server) >= 1


def _wait_until_idle(publisher: WakeUpPublisher) -> None:
    """Until what was handed over before has met its fate."""
    assert publisher.send(AGENT_QUEUE, "last").done.wait(60)


def test_the_first_wake_up_after_a_restart_arrives(
    over_valkey: Installation, valkey_server: RedisServer
) -> None:
    """The connection of before is dead, and the broker is well: no job need wait for the sweep."""
    assert submit(over_valkey, SubmitRequest("x"), OWNER).woken
    valkey_server.restart()
    assert submit(over_valkey, SubmitRequest("x"), OWNER).woken


def test_the_wait_for_the_broker_is_bounded_whatever_the_transport_does(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publisher that hangs for ever: submit waits for its event with a limit, never for the transport itself."""
    hanging, free = threading.Event(), threading.Event()

    def hang(_self: WakeUpPublisher, _wake_up: object) -> None:
        hanging.set()
        free.wait(120)

    monkeypatch.setattr(WakeUpPublisher, "_publish", hang)
    receipt = submit(installation, SubmitRequest("x"), OWNER)
    assert hanging.wait(30)
    assert not free.is_set()
    assert (receipt.created, receipt.woken) == (True, False)
    assert get_job(installation, receipt.job.id, OWNER).state == State.QUEUED
    free.set()
