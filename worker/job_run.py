"""A job while one run works on it: the view in memory, kept equal to what is committed."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.measures import STEPS
from jobs.pieces import Movement, Piece, thaw
from jobs.todos import TODO_WRITE, TodoList, current_todos
from jobs.workspace import workspace_path
from storage import jobs as job_store
from storage import transcript
from storage.checkpoints import commit_if_run_owns
from storage.records import Checkpoint, Committed, Message, Paid, RunRef
from storage.spending import charge_if_run_owns
from worker.accounting import Marks, Size, marks_of, size_columns, size_of
from worker.drafts import Draft
from worker.fallback import candidates_of, pick
from worker.layout import Conversation
from worker.live import LiveRun
from worker.model.profiles import Profile
from worker.thresholds import Limits, limits, reserve_of
from worker.tools.base import Tool

if TYPE_CHECKING:
    from worker.loops import Circle
    from worker.process import WorkerProcess

UNKNOWN_WINDOW = 10_000  # tokens, while the model's window is not known

_SPENDING = ("steps", "prompt_tokens", "completion_tokens", "cost", "active_seconds")


class JobRun:
    """What a run knows of its job. Read once at the claim; afterwards each commit brings it up to date."""

    def __init__(self, process: WorkerProcess, live: LiveRun, row: dict[str, Any]) -> None:
        self.process = process
        self.live = live
        self.row = row  # the job's columns, kept current by `commit`
        self.workspace: Path = workspace_path(process.settings.data_dir, row["id"])
        process.models.memory.refresh()
        self.instruction, frozen = job_store.get_inputs(process.db, row["id"])
        self.piece: Piece = thaw(frozen)
        self.rows: list[Message] = self._load_rows()
        self.conversation = Conversation()
        self.committed_steps = 0
        self.reminded_of: int | None = (
            None  # the todo list (its seq) that a reminder was given of in earlier rows
        )
        self._todos: TodoList | None = None
        self.circle: tuple[int, Circle | None] | None = (
            None  # the loop at the row of that seq: see worker.loops
        )
        self._candidates: tuple[tuple[str | None, str], list[str]] | None = None  # and what they depend on
        self._marks: tuple[Any, Marks] | None = None  # with the column's value that they were read from
        self.tools: dict[str, Tool] = {}
        self.tool_schemas: list[dict[str, Any]] = []
        self.model_in_use: str | None = None  # where there are several
        self.image_urls: dict[str, str] = {}  # of the images in the view, by their hash: see worker.images
        self.tools_of: str | None = None  # the movement whose tools these are
        self._began = self._marked = time.monotonic()
        self._step_began: float | None = None

    @property
    def ref(self) -> RunRef:
        return self.live.ref

    @property
    def job_id(self) -> str:
        return self.live.ref.job_id

    @property
    def movement(self) -> Movement:
        return self.piece.movement(self.row["movement"])

    @property
    def visit_has_begun(self) -> bool:
        return bool(self.row["visit_seq"])

    @property
    def unread(self) -> int:
        """Comments that arrived, as of the last commit, and that the model has not seen."""
        return int(self.row["inbox_total"] - self.row["inbox_seen"])

    @property
    def todos(self) -> TodoList:
        """The agent's todo list, replayed from the transcript: the same right after a call and after a crash."""
        if self._todos is None:
            self._todos = current_todos(self.process.db, self.job_id)
        return self._todos

    @property
    def seconds(self) -> float:
        """How long this run has been working."""
        return time.monotonic() - self._began

    @property
    def model_name(self) -> str:
        """The model that is asked next: settled by `choose_model`, until then the first that can be."""
        candidates = self.candidates
        if len(candidates) == 1:
            return candidates[0]
        if self.model_in_use in candidates:
            return str(self.model_in_use)
        return pick(self.process, candidates) if candidates else ""

    @property
    def candidates(self) -> list[str]:
        """The job's models, best first."""
        of = (self.row["model"], self.row["movement"])
        if self._candidates is None or self._candidates[0] != of:
            self._candidates = (of, candidates_of(self.process.settings, of[0], self.piece, of[1]))
        return self._candidates[1]

    @property
    def profile(self) -> Profile:
        """What is known of the model that is asked next."""
        return self.process.profile(self.model_name)

    @property
    def window(self) -> int:
        """The model's context window in tokens."""
        return self.profile.window or UNKNOWN_WINDOW

    @property
    def max_output(self) -> int | None:
        """The longest reply that is asked for, in tokens: set aside in the window. None: the endpoint's own limit."""
        limit = self.profile.max_output
        return None if limit is None else reserve_of(self.window, limit)

    @property
    def marks(self) -> Marks:
        """What was done about the context's size."""
        marks = self._all_marks
        if marks.model in (None, self.model_name):
            return marks
        return replace(marks, model=None, form=None, ceiling=0)

    @property
    def size(self) -> Size:
        """How large the context is, as of the last commit."""
        size = size_of(self.row)
        return size if self._all_marks.model in (None, self.model_name) else size.for_another_model()

    @property
    def _all_marks(self) -> Marks:
        """Whichever model they are of."""
        column = self.row["context_marks"]
        if self._marks is None or self._marks[0] is not column:
            self._marks = (column, marks_of(self.row))
        return self._marks[1]

    @property
    def limits(self) -> Limits:
        """What is due at which size."""
        profile, marks = self.profile, self.marks
        known = profile.window is not None
        window = profile.window or UNKNOWN_WINDOW
        if not known:  # at least twice what no compaction can free: the endpoint says if that is too much
            window = max(window, 2 * round(marks.fixed * self.size.ratio))
        threshold = self.process.settings.context.compression.token_threshold
        return limits(window, profile.max_output, threshold, known=known, ceiling=marks.ceiling)

    @property
    def window_is_known(self) -> bool:
        """False: the window is a guess, and may be far too small."""
        return self.profile.window is not None

    @property
    def label(self) -> str:
        """Tells the endpoint which conversation a request belongs to."""
        return f"{self.job_id}/{self.row['visit']}/{self.row['epoch']}"

    def begin_draft(self) -> Draft:
        """Where the reply that comes next can be read while it is written; the next commit ends it."""
        draft = self.live.draft = Draft(self.rows[-1].seq + 1)
        return draft

    def commit(self, checkpoint: Checkpoint) -> Committed:
        """Commits a checkpoint of this run and takes it over into the view. Raises as `commit_if_run_owns`."""
        now = time.monotonic()
        checkpoint.active_seconds = now - self._marked
        if checkpoint.move is not None:
            checkpoint.move.steps = self.committed_steps + checkpoint.steps
            checkpoint.move.forgives_attempts = bool(checkpoint.move.steps) or checkpoint.summary is not None
        self.account(checkpoint)
        self.live.draft = None
        checkpoint.ends_live = self.live.told
        committed = commit_if_run_owns(self.process.db, self.ref, checkpoint)
        self._marked = now
        self.live.told = False
        if checkpoint.prompt_tokens or checkpoint.completion_tokens:
            self.process.count_spent(checkpoint.prompt_tokens, checkpoint.completion_tokens, checkpoint.cost)
        if committed.woken_parent is not None:
            self.process.wake(committed.woken_parent)
        self._take_over(checkpoint, committed)
        return committed

    def step_begins(self) -> None:
        """From here on the next step is timed; one that had no calls to answer ends here."""
        self.step_ends()
        self._step_began = time.monotonic()

    def step_ends(self) -> None:
        """Notes how long the step took. One whose beginning another run saw is not timed."""
        if self._step_began is not None and self.committed_steps:
            self.process.measures.observe(STEPS, time.monotonic() - self._step_began)
        self._step_began = None

    def charge(self, paid: Paid) -> None:
        """Commits what a call for a summary took. Raises LeaseLost, StorageError."""
        charge_if_run_owns(self.process.db, self.ref, paid)
        self.process.count_spent(paid.prompt_tokens, paid.completion_tokens, paid.cost)
        self.row["prompt_tokens"] += paid.prompt_tokens
        self.row["completion_tokens"] += paid.completion_tokens
        self.row["cost"] += paid.cost or 0.0
        self.row["cost_known"] &= paid.cost is not None

    def account(self, checkpoint: Checkpoint) -> None:
        """Adds what is appended to the context's size, unless the checkpoint sets the size itself."""
        if checkpoint.messages and "context_tokens" not in checkpoint.values:
            appended = sum(message.tokens for message in checkpoint.messages)
            checkpoint.values |= size_columns(self.size.grown(appended))

    def _take_over(self, checkpoint: Checkpoint, committed: Committed) -> None:
        for name in _SPENDING:
            self.row[name] += getattr(checkpoint, name)
        self.committed_steps += checkpoint.steps
        self.row |= {name: value for name, value in checkpoint.values.items() if name in self.row}
        self.row["inbox_total"] = committed.inbox_total
        self.row |= committed.limits | {"children_total": committed.children_total}
        if checkpoint.inbox_seen is not None:
            self.row["inbox_seen"] = checkpoint.inbox_seen
        if checkpoint.summary is not None:
            self.row["summary_seq"] = committed.messages[0].seq
        if checkpoint.begins_visit:
            self.row["visit_seq"] = committed.messages[0].seq
            self.rows.clear()
        self.rows.extend(committed.messages)
        if any(row.tool_name == TODO_WRITE for row in committed.messages):
            self._todos = None
        self.live.pause = committed.pause_requested  # also False again: a pause may be withdrawn
        if committed.cancel_requested:
            self.live.cancel.cancel("cancel")

    def _load_rows(self) -> list[Message]:
        if not self.visit_has_begun:
            return []
        row = self.row
        return transcript.load_view(
            self.process.db, row["id"], row["visit_seq"], row["tail_seq"], row["summary_seq"]
        )
