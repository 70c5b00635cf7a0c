"""What the command line shows of a family."""

from __future__ import annotations

from pathlib import Path

from jobs.reasons import Reason
from jobs.states import State
from storage.engine import Database
from tests import factories
from tests.cli.conftest import Cli


def test_show_and_list_tell_of_subtasks(cli: Cli, folder: Path) -> None:
    assert cli("list").code == 0
    db = Database(f"sqlite:///{folder}/sostenuto-data/sostenuto.db")
    changes = {"children_open": 1, "children_total": 2, "reason": Reason.SUBTASKS}
    parent = factories.make_job(db, State.WAITING_SUBTASKS, **changes)
    one = factories.make_job(db, State.FAILED, id="child-1", parent_id=parent, title="First part")
    two = factories.make_job(db, State.QUEUED, id="child-2", parent_id=parent, title="Second part")
    db.close()

    shown = cli("show", parent, "--json").data
    assert (shown["children_open"], shown["children_total"]) == (1, 2)
    assert shown["children"] == [
        {"id": one, "state": "failed", "title": "First part"},
        {"id": two, "state": "queued", "title": "Second part"},
    ]
    assert shown["reason_text"] == "waits for 1 of 2 subtasks"
    assert parent in shown["next_action"]
    page = cli("show", parent).out
    assert "subtasks (1 of 2 unfinished)" in page
    assert f"{one}  failed      First part" in page
    assert f"parent    {parent}" in cli("show", two).out
    assert [job["id"] for job in cli("list", "--parent", parent, "--json").data["jobs"]] == [two, one]
    assert [
        job["id"] for job in cli("list", "--parent", parent, "--state", "failed", "--json").data["jobs"]
    ] == [one]
    assert cli("list", "--parent", "nobody").code == 3
