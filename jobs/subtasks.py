"""Subtasks: jobs that an agent begins for a part of its work, and waits for together.

A subtask is a job like any other: it has a row, a workspace and a life of its own. From its parent it takes owner,
priority, model, labels (but no task identifier: it is no later job about the same thing) and a share of the budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uuid_utils

from jobs.errors import TooManySubtasks, UsageError
from jobs.installation import Installation
from jobs.pieces import freeze
from jobs.resolver import split_path
from jobs.settings import Settings
from jobs.shares import child_limits
from jobs.states import State
from jobs.submit import (
    SubmitRequest,
    check_request,
    discard_files_unless_stored,
    new_row,
    workspace_limits,
)
from jobs.views import JobView, get_job
from jobs.wakeups import AGENT_QUEUE
from jobs.workspace import FOLDERS, InputFile, create_workspace, open_file, workspace_path
from storage import jobs as job_store
from storage.records import NewEvent, RunRef
from storage.subtasks import child_with_key, insert_child_if_run_owns


@dataclass(frozen=True, slots=True)
class SubtaskRequest:
    """What the agent gives. `files` are paths in its own workspace; `call_id` is the call that asks for it."""

    call_id: str
    instruction: str
    piece: str | None = None
    files: Sequence[str] = ()


def begin_subtask(installation: Installation, run: RunRef, request: SubtaskRequest) -> tuple[JobView, bool]:
    """Begins a child of the run's job: (the child, True); when this returns, it is committed and will run.

    The same call again, after a crash, finds the child that it began: (the child, False). Raises UsageError and its kin,
    NotFound (a file) or TooManySubtasks for what the agent can do something about, LeaseLost, RequestPending or
    StorageError; there is no child then, except that a StorageError may leave it committed: so repeat the call.
    """
    parent = job_store.get_job(installation.db, run.job_id)
    key = f"subtask:{parent['id']}:{request.call_id}"
    known = child_with_key(installation.db, parent["id"], parent["owner"], key)
    if known is not None:
        return get_job(installation, known, None), False
    settings = installation.settings
    _check_caps(settings, parent)
    wanted = SubmitRequest(
        instruction=request.instruction,
        piece=request.piece,
        idempotency_key=key,
        **{name: parent[name] for name in ("task_type", "repository", "user", "priority", "model")},
    )
    check_request(installation, wanted)
    limits = child_limits(installation.db, parent)
    choice = installation.library.choose(wanted.piece, wanted.instruction)
    child_id = str(uuid_utils.uuid7())
    row = new_row(installation, wanted, choice, child_id, parent["owner"])
    files = _handed_over(workspace_path(settings.data_dir, parent["id"]), request.files)
    create_workspace(settings.data_dir, child_id, files, workspace_limits(settings))
    data = {"piece": choice.piece.name, "chosen": choice.reason, "parent": parent["id"]}
    try:
        insert_child_if_run_owns(
            installation.db,
            run,
            row | limits | {"depth": parent["depth"] + 1},
            wanted.instruction,
            freeze(choice.piece),
            event=NewEvent("submit", "agent", None, State.QUEUED, data),
            most=settings.max_subtasks,
        )
    except Exception:
        discard_files_unless_stored(installation, child_id)
        raise
    installation.wakeups.send(AGENT_QUEUE, child_id)
    return get_job(installation, child_id, None), True


def _check_caps(settings: Settings, parent: Mapping[str, Any]) -> None:
    if not settings.max_subtask_depth:
        raise UsageError("subtasks are turned off in this installation", hint="do it yourself")
    if parent["depth"] >= settings.max_subtask_depth:
        raise UsageError(
            f"this job is a subtask of level {parent['depth']}, the last that is allowed",
            hint="do it yourself",
        )
    if parent["children_total"] >= settings.max_subtasks:  # once more, surely, in the commit
        raise TooManySubtasks(parent["id"], settings.max_subtasks)


def _handed_over(root: Path, paths: Sequence[str]) -> Iterator[InputFile]:
    """The parent's files, one open at a time, under the names they get in the child's `input/`."""
    for path in paths:
        parts = split_path(path)
        name = "/".join(parts[1:] if len(parts) > 1 and parts[0] in FOLDERS else parts)
        with open_file(root, path) as file:
            yield InputFile(name, file)
