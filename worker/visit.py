"""The start of a movement's visit: a fresh context, built once and stored."""

from __future__ import annotations

from typing import Any

from jobs.workspace import list_workspace
from storage.comments import list_comments, thread_remarks
from storage.records import Checkpoint, Commit, NewEvent, NewMessage
from worker import transition
from worker.accounting import marks_column, size_columns
from worker.allowed_commands import LimitedBash
from worker.between import blocks_of_earlier_movements
from worker.inherited import inheritance_block
from worker.job_run import JobRun
from worker.layout import request_text
from worker.mirrors import mirror_instruction
from worker.note_tools import note_tools
from worker.prompts import (
    INSTRUCTION_FILE,
    THREAD_REMARKS,
    Block,
    files_block,
    instruction_block,
    remarks_block,
    system_prompt,
    time_block,
)
from worker.read_comments import ReadComments
from worker.recall import Recall
from worker.subtask_tool import SpawnSubtask, spawn_may_be_used
from worker.tokens import estimate_again, estimate_tokens
from worker.tools.catalogue import Catalogue, schemas

INSTRUCTION_SHARE = 0.4  # of the size at which compaction begins: more would leave no room to work in


def begin_visit(job: JobRun) -> None:
    """Commits the system message and the head of a new visit; comments that it shows count as read."""
    load_tools(job)
    system = NewMessage("system", "system", system_prompt(job.movement, [*job.tools, transition.NAME]))
    system.extra = {"movement": job.row["movement"], "tools": job.tool_schemas}
    heads = [NewMessage("user", "head", block.text, extra={"block": block.name}) for block in _blocks(job)]
    messages = [system, *heads]
    system.tokens = estimate_again(system.content or "")  # the same for every job in this movement
    for head in heads:
        head.tokens = estimate_tokens(head.content or "")
    visit = job.row["visit"] + 1
    fixed = sum(m.tokens for m in messages) + estimate_again(request_text([], job.tool_schemas))
    job.commit(
        Checkpoint(
            Commit.VISIT,
            messages=messages,
            events=[NewEvent("movement", "worker", data={"movement": job.row["movement"], "visit": visit})],
            inbox_seen=job.row["inbox_total"],
            values={
                "visit": visit,
                "epoch": job.row["epoch"] + 1,
                "shell_folder": None,
                **size_columns(job.size.replaced(fixed)),
                **marks_column(job.marks.of_new_visit(fixed)),
            },
            begins_visit=True,
        )
    )


def _blocks(job: JobRun) -> list[Block]:
    process = job.process
    unread = list_comments(process.db, job.job_id, job.row["inbox_seen"]) if job.unread else []
    # What arrived since the last commit is left for the first gap: it is not counted as read here.
    unread = [remark for remark in unread if remark.number <= job.row["inbox_total"]]
    remarks = thread_remarks(process.db, job.row, THREAD_REMARKS)
    later = job.row["inbox_total"]
    known = [remark for remark in remarks if remark.job_id != job.job_id or remark.number <= later]
    blocks = [
        inheritance_block(job),
        *blocks_of_earlier_movements(job),
        time_block(process.db.clock(), process.zone),
        remarks_block(job.job_id, known, unread, process.zone),
        files_block(list_workspace(job.workspace)),
        _instruction(job),
    ]
    return [block for block in blocks if block is not None]


def _instruction(job: JobRun) -> Block:
    """All of it, or what fits beside a conversation."""
    most = int(job.limits.compact * INSTRUCTION_SHARE)
    block = instruction_block(job.instruction, most)
    if len(block.text) < len(job.instruction):
        mirror_instruction(job, INSTRUCTION_FILE)
    return block


def load_tools(job: JobRun) -> None:
    """The tools of the job's present movement, and their schemas as frozen when the visit began."""
    if job.tools_of == job.row["movement"]:
        return
    movement = job.movement
    notes = Catalogue(note_tools(job.process.db, job.job_id))
    tools = job.process.catalogue.select(movement.allowed_tools, edit=movement.edit)
    tools |= notes.select(movement.allowed_tools, edit=movement.edit)
    tools |= job.process.mcp.catalogue.select(movement.allowed_tools, edit=movement.edit)
    if "Bash" in tools and movement.allowed_commands is not None:
        tools["Bash"] = LimitedBash(tools["Bash"], tuple(movement.allowed_commands))
    if spawn_may_be_used(job.piece, movement):
        spawn = SpawnSubtask(job.process.installation, job.ref)
        tools[spawn.name] = spawn
    comments = ReadComments(job.process.db, job.job_id, job.process.zone)
    recall = Recall(job.process.db, job.job_id, lambda: int(job.row["visit_seq"]))
    job.tools = tools | {comments.name: comments, recall.name: recall}
    job.tools_of = movement.name
    job.tool_schemas = _frozen_schemas(job) or [*schemas(job.tools), transition.schema(movement)]


def _frozen_schemas(job: JobRun) -> list[dict[str, Any]] | None:
    if not job.visit_has_begun:
        return None
    frozen: list[dict[str, Any]] | None = (job.rows[0].extra or {}).get("tools")
    return frozen
