"""A job's subtasks as a tree, theirs too."""

from __future__ import annotations

from dataclasses import dataclass, field

from jobs.installation import Installation
from jobs.views import JobView
from jobs.web.panels import Status, status_of
from jobs.web.words import Words
from storage.subtasks import list_family

MOST_SHOWN = 300


@dataclass(slots=True)
class Member:
    """A subtask and its own subtasks."""

    status: Status
    children: list[Member] = field(default_factory=list)


def family_of(installation: Installation, job: JobView, words: Words) -> list[Member]:
    """The tree below a job, of large ones the first part. The caller has checked the owner: children share it."""
    if not job.children_total:
        return []
    top: list[Member] = []
    members: dict[str, Member] = {}
    for row in list_family(installation.db, job.id, MOST_SHOWN):  # parents come before their children
        member = members[row["id"]] = Member(status_of({**row, "worker": None}, words, installation))
        parent = members.get(row["parent_id"])
        (top if parent is None else parent.children).append(member)
    return top
