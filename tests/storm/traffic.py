"""What people do while it storms: submit, comment, answer, pause, resume, cancel, retry; and what they were told of it.

All through the same functions that the command line and the HTTP API call. A call that fails with the database may have
been carried out all the same: then either is right, and the audit knows it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from jobs import comments, lifecycle
from jobs.errors import IllegalTransition, SostenutoError
from jobs.lifecycle import Budget
from jobs.states import TERMINAL, State
from jobs.submit import SubmitRequest, submit
from jobs.views import JobView, list_jobs
from storage.errors import StorageError
from tests.storm.recipes import PIECE_NAME, Recipe, draw
from tests.storm.site import Site

OWNER = "storm"
TICK_SECONDS = 0.2
THREADS = 4  # kinds of things that jobs are about: those of one kind inherit from each other
MOST_COMMENTS = 4  # to a job
OPEN = [state for state in State if state not in TERMINAL]


@dataclass(slots=True)
class Note:
    """What is known of a job outside of the database. `ends`: the states it may rightly end in."""

    recipe: Recipe | None = None  # of a job that was submitted; a subtask's is its parent's business
    told: set[str] = field(default_factory=set)  # comments that were accepted
    maybe_told: set[str] = field(default_factory=set)  # comments whose acceptance nobody knows
    ends: set[State] = field(default_factory=lambda: {State.SUCCEEDED})
    cancelled: bool = False
    to_be_retried: bool = False


@dataclass(frozen=True, slots=True)
class Mix:
    """How often what happens, for each open job and tick."""

    open_jobs: int = 16
    comment: float = 0.03
    pause: float = 0.01
    cancel: float = 0.002
    jobs_a_second: float = 100.0


class Traffic(threading.Thread):
    """One thread that keeps some jobs open until it is told to drain: then it only answers, resumes and retries."""

    def __init__(self, site: Site, seed: int, mix: Mix) -> None:
        super().__init__(name="traffic", daemon=True)
        self.notes: dict[str, Note] = {}
        self.unanswered: dict[
            str, SubmitRequest
        ] = {}  # idempotency key → a submission that is to be repeated
        self.recipes: dict[str, Recipe] = {}  # by idempotency key
        self.errors = 0  # calls that failed with the database
        self._installation = site.installation
        self._chance = random.Random(f"{seed}/traffic")
        self._mix = mix
        self._draining = threading.Event()
        self._over = threading.Event()
        self._allowance = 0.0

    def drain(self) -> None:
        self._draining.set()

    @property
    def is_done(self) -> bool:
        """Whether it has nothing left to do: every submission was answered, every retry made."""
        return not self.unanswered and not any(note.to_be_retried for note in list(self.notes.values()))

    def stop(self) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(TICK_SECONDS):
            try:
                self.tick()
            except StorageError:
                self.errors += 1

    def tick(self) -> None:
        """One look at all open jobs."""
        views = list_jobs(self._installation, OWNER, OPEN, limit=500)
        for key in list(self.unanswered):
            self._submit(key)
        if not self._draining.is_set():
            self._top_up(sum(view.parent_id is None for view in views))
        for view in views:
            note = self.notes.setdefault(view.id, Note())
            self._act(view, note)
        for job_id, note in self.notes.items():
            if note.to_be_retried:
                self._retry(job_id, note)

    def _top_up(self, open_jobs: int) -> None:
        self._allowance = min(self._allowance + self._mix.jobs_a_second * TICK_SECONDS, 4.0)
        while self._allowance >= 1 and open_jobs + len(self.unanswered) < self._mix.open_jobs:
            self._allowance -= 1
            open_jobs += 1
            about = f"thing {self._chance.randrange(THREADS)}" if self._chance.random() < 0.3 else None
            self.submit(draw(self._chance), about, self._chance.choice((0, 0, 0, 5)))

    def submit(self, recipe: Recipe, about: str | None = None, priority: int = 0) -> None:
        """Submits a job, now or, where nobody answers, at the next tick."""
        self.recipes[recipe.token] = recipe
        self.unanswered[recipe.token] = SubmitRequest(
            recipe.instruction(),
            piece=PIECE_NAME,
            task_type="storm",
            task_identifier=about,
            idempotency_key=recipe.token,
            priority=priority,
        )
        self._submit(recipe.token)

    def _submit(self, key: str) -> None:
        """Repeated with the same key until it is answered: there must be one job all the same."""
        try:
            receipt = submit(self._installation, self.unanswered[key], OWNER)
        except StorageError:
            self.errors += 1
            return
        self.notes.setdefault(receipt.job.id, Note()).recipe = self.recipes[key]
        del self.unanswered[key]

    def _act(self, view: JobView, note: Note) -> None:
        chance = self._chance.random()
        if view.state == State.WAITING_HUMAN:
            if chance < 0.5 or self._draining.is_set():
                self._tell(view, note, answer=True)
        elif view.state == State.PAUSED:
            if chance < 0.3 or self._draining.is_set():
                self._try(lambda: lifecycle.resume(self._installation, view.id, OWNER, OWNER, Budget()))
        elif self._draining.is_set():
            return
        elif chance < self._mix.comment:
            if len(note.told) < MOST_COMMENTS:
                self._tell(view, note, answer=False)
        elif chance < self._mix.comment + self._mix.pause:
            self._try(lambda: lifecycle.pause(self._installation, view.id, OWNER, OWNER))
        elif chance < self._mix.comment + self._mix.pause + self._mix.cancel:
            self._cancel(view, note)

    def _tell(self, view: JobView, note: Note, *, answer: bool) -> None:
        token = f"cmt-{self._chance.getrandbits(48):012x}"
        note.maybe_told.add(token)
        say = comments.reply if answer else comments.add_comment
        if self._try(lambda: say(self._installation, view.id, OWNER, f"Note {token}.", "ann")):
            note.told.add(token)

    def _cancel(self, view: JobView, note: Note) -> None:
        if note.cancelled or view.parent_id is not None or view.children_total:
            return
        note.cancelled = True
        note.ends = {State.SUCCEEDED, State.CANCELLED}
        note.to_be_retried = self._chance.random() < 0.7
        self._try(lambda: lifecycle.cancel(self._installation, view.id, OWNER, OWNER))

    def _retry(self, job_id: str, note: Note) -> None:
        """Once it has ended as cancelled; where it succeeded first, there is nothing to retry."""
        try:
            lifecycle.retry(self._installation, job_id, OWNER, OWNER, None)
        except StorageError:
            self.errors += 1
        except IllegalTransition as error:
            note.to_be_retried = error.state != State.SUCCEEDED
        else:
            note.to_be_retried = False
            note.ends = {State.SUCCEEDED}

    def _try(self, act: Callable[[], object]) -> bool:
        """Whether it was done. A job that is no longer in the state for it is no error: it went on meanwhile."""
        try:
            act()
        except StorageError:
            self.errors += 1
            return False
        except SostenutoError:
            return False
        return True
