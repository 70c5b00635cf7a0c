"""What both clients can do. Called on Sostenuto each method returns its result, on AsyncSostenuto it is awaited."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any

from sostenuto import calls
from sostenuto.bound import Items, each, once
from sostenuto.calls import FileOrPath, JobOrId
from sostenuto.connection import MEMORY_LIMIT
from sostenuto.flows import Flow
from sostenuto.records import (
    Budget,
    Comment,
    Event,
    File,
    HistoryEntry,
    Job,
    Message,
    Piece,
    Todo,
    ToolCall,
    Worker,
)
from sostenuto.uploads import Files, Source


class Methods:
    """Every method raises the errors of `sostenuto.errors`, and where a job is wanted takes a Job or its id."""

    retries: int

    @once
    def submit(
        self,
        instruction: str,
        *,
        files: Files = (),
        piece: str | None = None,
        task_type: str | None = None,
        task_identifier: str | None = None,
        repository: str | None = None,
        user: str | None = None,
        inherits_from: JobOrId | None = None,
        priority: int | None = None,
        available_at: datetime | None = None,
        budget: Budget | None = None,
        model: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Flow[Job]:
        """Submit a job; it is stored, with its files, when this returns.

        Repeated after failures of the connection and 503, and never submitted twice: without a key of yours, one is
        made for this call. With yours, a later call too returns the first one's job. `files` are paths, (name, content)
        pairs, or a mapping of names to contents; a content is a path, bytes or an open binary file, and one that
        cannot be rewound is sent once. They land in `input/`.
        """
        given = {
            "piece": piece,
            "task_type": task_type,
            "task_identifier": task_identifier,
            "repository": repository,
            "user": user,
            "inherits_from": calls.id_of(inherits_from),
            "priority": priority,
            "available_at": available_at,
            "budget": budget,
            "model": model,
            "metadata": metadata,
        }
        return calls.submit(self.retries, instruction, files, idempotency_key, given)

    @once
    def job(self, job: JobOrId) -> Flow[Job]:
        """The job as it stands now."""
        return calls.one(self.retries, job)

    @each
    def jobs(
        self,
        *,
        state: str | Iterable[str] = (),
        reason: str | Iterable[str] = (),
        parent: JobOrId | None = None,
        piece: str | None = None,
        task_type: str | None = None,
        task_identifier: str | None = None,
        repository: str | None = None,
        user: str | None = None,
        title: str | None = None,
        oldest_first: bool = False,
        page_size: int = 100,
    ) -> Items[Job]:
        """All jobs that fit what is given, newest first, fetched page by page as they are taken.

        `state` and `reason`: any of these; `title`: a part of it, whatever its case.
        """
        params = {
            "state": state,
            "reason": reason,
            "parent": calls.id_of(parent),
            "piece": piece,
            "task_type": task_type,
            "task_identifier": task_identifier,
            "repository": repository,
            "user": user,
            "title": title,
            "order": "oldest" if oldest_first else None,
            "limit": page_size,
        }
        return Items(calls.listed(self.retries, Job, "/api/jobs", params))

    @once
    def wait(
        self, job: JobOrId, *, timeout: float | None = None, until: Callable[[Job], bool] | None = None
    ) -> Flow[Job]:
        """Wait until the job has ended, asks a question or is paused; or until `until` says so of it.

        Looks again every second at most. Raises WaitTimeout after `timeout` seconds; None: never.
        """
        return calls.wait(self.retries, job, timeout, until)

    @each
    def events(self, job: JobOrId, *, after: str | None = None) -> Items[Event]:
        """The job's history and transcript as they are committed, from the beginning or after an event's id.

        Goes on over cut connections and restarts of the server: nothing is lost and nothing comes twice. The last
        event is `end`, with the state in its data.
        """
        return Items(calls.events(self.retries, job, after))

    @once
    def comment(self, job: JobOrId, text: str) -> Flow[Comment]:
        """Tell the agent something: it reads it at its next step, and always before it may complete."""
        return calls.say(self.retries, job, "comments", text)

    @once
    def reply(self, job: JobOrId, text: str) -> Flow[Comment]:
        """Answer the job's question: any text, or the number of a choice. Conflict when it asks none."""
        return calls.say(self.retries, job, "reply", text)

    @once
    def pause(self, job: JobOrId) -> Flow[Job]:
        """Pause: at once where the job waits, else after the present step."""
        return calls.act(self.retries, job, "pause")

    @once
    def resume(self, job: JobOrId, budget: Budget | None = None) -> Flow[Job]:
        """Go on after a pause, with raised limits where some are given."""
        document = None if budget is None else {"budget": budget.as_json()}
        return calls.act(self.retries, job, "resume", document)

    @once
    def cancel(self, job: JobOrId) -> Flow[Job]:
        """End the job, and its subtasks."""
        return calls.act(self.retries, job, "cancel")

    @once
    def retry(self, job: JobOrId, model: str | None = None) -> Flow[Job]:
        """Continue a failed, aborted or cancelled job from its last checkpoint, with another model if one is given."""
        document = None if model is None else {"model": model}
        return calls.act(self.retries, job, "retry", document)

    @once
    def act_on(self, action: str, jobs: Iterable[JobOrId]) -> Flow[list[dict[str, Any]]]:
        """Pause, resume, cancel or retry up to 100 jobs, each for itself.

        One result a job, in order: `id`, `ok`, and `state`, or `code` and `detail` of what refused it.
        """
        return calls.bulk(self.retries, action, jobs)

    @each
    def history(self, job: JobOrId, *, after: int = 0) -> Items[HistoryEntry]:
        """Every change of the job, oldest first."""
        return Items(calls.of_job(self.retries, job, "history", HistoryEntry, {"after": after}))

    @each
    def messages(self, job: JobOrId, *, after: int = 0) -> Items[Message]:
        """The transcript, oldest first."""
        return Items(calls.of_job(self.retries, job, "messages", Message, {"after": after}))

    @each
    def comments(self, job: JobOrId, *, after: int = 0) -> Items[Comment]:
        """What people told the agent, and its own questions and result."""
        return Items(calls.of_job(self.retries, job, "comments", Comment, {"after": after}))

    @each
    def tool_calls(self, job: JobOrId) -> Items[ToolCall]:
        """The calls that the model asked for, in its order."""
        return Items(calls.of_job(self.retries, job, "tool-calls", ToolCall))

    @once
    def summaries(self, job: JobOrId) -> Flow[list[dict[str, Any]]]:
        """The summaries of the job's context and, once it has ended, of the whole job."""
        return calls.documents(self.retries, job, "summaries")

    @each
    def children(self, job: JobOrId) -> Items[Job]:
        """The job's subtasks, in the order in which they were begun."""
        return Items(calls.of_job(self.retries, job, "children", Job))

    @each
    def todos(self, job: JobOrId) -> Items[Todo]:
        """The agent's todo list as it stands."""
        return Items(calls.of_job(self.retries, job, "todos", Todo))

    @once
    def checklists(self, job: JobOrId) -> Flow[list[dict[str, Any]]]:
        """The agent's checklists as they stand."""
        return calls.documents(self.retries, job, "checklists")

    @once
    def plans(self, job: JobOrId) -> Flow[list[dict[str, Any]]]:
        """The plans that the agent recorded, oldest first."""
        return calls.documents(self.retries, job, "plans")

    @once
    def lessons(self, job: JobOrId) -> Flow[list[dict[str, Any]]]:
        """What each movement handed to the next."""
        return calls.documents(self.retries, job, "lessons")

    @each
    def files(self, job: JobOrId) -> Items[File]:
        """What is in `input/` and `output/`."""
        return Items(calls.of_job(self.retries, job, "files", File))

    @once
    def read(self, job: JobOrId, file: FileOrPath, *, limit: int = MEMORY_LIMIT) -> Flow[bytes]:
        """A file's content in memory. Raises TooLarge when it has more than `limit` bytes."""
        return calls.read(self.retries, job, file, limit)

    @once
    def download(self, job: JobOrId, file: FileOrPath, to: str | PathLike[str]) -> Flow[Path]:
        """Fetch a file to the path `to`, or into the folder `to` under its own name; gives its path.

        It is there whole or not at all: an older file of that name stays until then. A fetch that is cut goes on
        where it was, unless the file changed meanwhile.
        """
        return calls.download(self.retries, job, file, to)

    @once
    def download_workspace(self, job: JobOrId, to: str | PathLike[str]) -> Flow[Path]:
        """Fetch `input/` and `output/` as a ZIP, as `download` does; cut, it begins anew."""
        return calls.download_workspace(self.retries, job, to)

    @once
    def upload(self, job: JobOrId, path: str, source: Source) -> Flow[int]:
        """Put a file into `input/` or `output/`, replacing an older one at once or not at all; gives its size."""
        return calls.upload(self.retries, job, path, source)

    @each
    def pieces(self) -> Items[Piece]:
        """The workflows that jobs can run."""
        return Items(calls.listed(self.retries, Piece, "/api/pieces"))

    @each
    def workers(self) -> Items[Worker]:
        """The worker processes that run now."""
        return Items(calls.listed(self.retries, Worker, "/api/workers"))

    @once
    def ready(self) -> Flow[dict[str, str]]:
        """How the server's database and broker are. Raises Unavailable when jobs cannot be accepted."""
        return calls.readiness(self.retries)
