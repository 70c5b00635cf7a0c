"""The error tree.

SostenutoError                 one line for the user, a hint, a CLI exit code
├── StorageError               the database cannot do its work now
│   ├── DatabaseUnavailable    unreachable, refused, frozen or locked for too long
│   ├── DiskFull               the disk or quota under the database is full
│   └── SchemaMismatch         the database is older or newer than this program
├── JobNotFound                no such job (or not yours)
├── IllegalTransition          the job's state does not allow this event
├── LeaseLost                  the run no longer owns its job: it must stop and write nothing
├── InboxChanged               a comment arrived that the run has not seen
├── RequestPending             a person asked for a pause or an end that the run has not seen
├── NoOpenChildren             there is no unfinished subtask to wait for
├── TooManyQueued              so many jobs wait that no more are accepted
├── TooManySubtasks            the job may begin no further subtask
└── (jobs.errors, worker.…)    what the producers and the workers add
"""

from __future__ import annotations


class SostenutoError(Exception):
    """Base of every error a user may see. `str(error)` is one line; `hint` says what to do next."""

    exit_code: int = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class StorageError(SostenutoError):
    """The database cannot do its work now; what was committed before is safe."""

    exit_code = 5


class DatabaseUnavailable(StorageError):
    """The database is unreachable, frozen, or locked for longer than the busy timeout."""


class DiskFull(StorageError):
    """The disk (or quota) is full: the statement was rolled back and nothing of it is stored."""


class SchemaMismatch(StorageError):
    """The database's schema is older or newer than this program's."""


class JobNotFound(SostenutoError):
    """No job with this id, or it belongs to someone else."""

    exit_code = 3

    def __init__(self, job_id: str) -> None:
        super().__init__(f"there is no job {job_id}", hint="list the jobs with: sostenuto list")
        self.job_id = job_id


class IllegalTransition(SostenutoError):
    """The job's state does not allow the event. Nothing was changed."""

    exit_code = 4

    def __init__(self, job_id: str, state: str, event: str, *, hint: str | None = None) -> None:
        super().__init__(f"job {job_id} is {state}: {event} is not possible", hint=hint)
        self.job_id = job_id
        self.state = state
        self.event = event


class LeaseLost(SostenutoError):
    """The run no longer owns its job. Whatever it was about to write was not written."""

    def __init__(self, job_id: str, run_id: str) -> None:
        super().__init__(f"run {run_id} no longer owns job {job_id}")
        self.job_id = job_id
        self.run_id = run_id


class RequestPending(SostenutoError):
    """A person asked to pause or cancel while the run was leaving `running` otherwise; nothing was changed."""

    def __init__(self, job_id: str, *, cancel: bool) -> None:
        super().__init__(f"job {job_id} is to be {'cancelled' if cancel else 'paused'}")
        self.job_id = job_id
        self.cancel = cancel


class InboxChanged(SostenutoError):
    """A comment arrived that the run has not shown to the model; the guarded write changed nothing."""

    def __init__(self, job_id: str, unread: int) -> None:
        super().__init__(f"job {job_id} has {unread} unread comments")
        self.job_id = job_id
        self.unread = unread


class NoOpenChildren(SostenutoError):
    """Every subtask has ended: waiting for them changed nothing."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id} has no unfinished subtask")
        self.job_id = job_id


class TooManyQueued(SostenutoError):
    """As many jobs wait as may: this one was not accepted, and nothing of it is kept."""

    exit_code = 8
    retry_after = 10.0  # seconds: a guess, for clients that try again by themselves

    def __init__(self, most: int, owner: str | None) -> None:
        whose = "in this installation" if owner is None else f"of {owner}"
        super().__init__(
            f"{most:,} jobs {whose} wait already, which is the most",
            hint="try again when some of them have run; the same idempotency key never makes two jobs",
        )


class TooManySubtasks(SostenutoError):
    """The job has begun as many subtasks as it may; nothing was written."""

    def __init__(self, job_id: str, most: int) -> None:
        super().__init__(
            f"job {job_id} has begun {most} subtasks, which is the most",
            hint="do the rest yourself, or give a subtask more to do",
        )
        self.job_id = job_id
        self.most = most
