"""What a parent is shown when all its subtasks have ended: each one's end, its result, and where its files are."""

from __future__ import annotations

from collections import Counter
from typing import Any

from jobs.errors import FileRejected, NotFound
from jobs.handover import Collected, collect_outputs
from jobs.states import State
from jobs.submit import workspace_limits
from jobs.workspace import workspace_path
from worker.job_run import JobRun
from worker.tokens import estimate_tokens
from worker.tools.text import prefix_that_fits

SHORT_ID = 8
LEAST_TOKENS = 50  # of a child's result
_CUT = " […cut]"


def collect_results(job: JobRun, children: list[dict[str, Any]], budget: int) -> str:
    """Copies the children's outputs into the workspace and tells of each child, in about `budget` tokens.

    May be repeated: what is copied already stays. Raises Cancelled.
    """
    counts = Counter(child["state"] for child in children)
    ends = ", ".join(f"{count} {state}" for state, count in counts.items())
    share = max(budget // len(children), LEAST_TOKENS)
    parts = [f"All subtasks have ended: {ends}."]
    parts += [
        _told(number, child, _files(job, number, child), share) for number, child in enumerate(children, 1)
    ]
    return "\n\n".join(parts)


def _told(number: int, child: dict[str, Any], files: str, share: int) -> str:
    lines = [f"{number}. {child['state'].upper()} — {child['title']} (job {child['id']})", files]
    if child["state"] == State.SUCCEEDED:
        text = f"Result: {child['result'] or '(none)'}"
    else:
        text = f"Why: {child['error_message'] or child['reason'] or child['state']}"
    if estimate_tokens(text) > share:
        text = text[: prefix_that_fits(text, share)] + _CUT
    return "\n".join([*lines, text])


def _files(job: JobRun, number: int, child: dict[str, Any]) -> str:
    """One line about the child's outputs, which are copied first; a failed copy is told, and ends nothing."""
    if child["completed_at"] is None:
        return "A person has just retried it; it is not waited for, and its files are not copied."
    data_dir = job.process.settings.data_dir
    try:
        collected = collect_outputs(
            workspace_path(data_dir, child["id"]),
            job.workspace,
            f"{number}-{child['id'][-SHORT_ID:]}",
            ended_at=child["completed_at"],
            limits=workspace_limits(job.process.settings),
            check=job.live.cancel.raise_if_cancelled,
        )
    except (FileRejected, NotFound) as error:
        return f"Its files could not be copied: {error}"
    return _placed(collected)


def _placed(collected: Collected) -> str:
    told = f"Its files: {collected.files} in {collected.folder}/" if collected.files else "It left no files."
    if collected.left_out:
        named = ", ".join(collected.named) + (", …" if collected.left_out > len(collected.named) else "")
        told += f" — {collected.left_out} left out, too large or no plain files: {named}"
    return told
