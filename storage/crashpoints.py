"""Named moments at which a process may die: before and after every commit, model call, tool effect and publish.

In production they do nothing. With SOSTENUTO_CRASH_POINT=NAME (or NAME:N for its Nth time) in its environment a process
kills itself there, as a power cut would: so the tests prove that another worker finishes its jobs. With NAME:N:stop it
stops itself instead and can be continued: a zombie.
"""

from __future__ import annotations

import os
import signal
import threading
from enum import StrEnum

VARIABLE = "SOSTENUTO_CRASH_POINT"


class CrashPoint(StrEnum):
    """`…ing` is just before the moment's effect, `…ed` just after it."""

    SUBMIT_COMMITTING = "submit.committing"
    SUBMIT_COMMITTED = "submit.committed"
    CONTROL_COMMITTING = (
        "control.committing"  # comment, reply, pause, resume, cancel, retry; the sweep as well
    )
    CONTROL_COMMITTED = "control.committed"
    CLAIM_COMMITTING = "claim.committing"
    CLAIM_COMMITTED = "claim.committed"
    VISIT_COMMITTING = "visit.committing"  # a movement's system message and head
    VISIT_COMMITTED = "visit.committed"
    GAP_COMMITTING = "gap.committing"  # comments and nudges before a model call
    GAP_COMMITTED = "gap.committed"
    MODEL_CALLING = "model.calling"
    MODEL_REPLIED = "model.replied"
    REPLY_COMMITTING = "reply.committing"  # a model's reply with the calls it intends
    REPLY_COMMITTED = "reply.committed"
    TOOL_STARTING = "tool.starting"
    TOOL_ENDED = "tool.ended"
    RESULT_COMMITTING = "result.committing"  # a call's result
    RESULT_COMMITTED = "result.committed"
    TRIM_COMMITTING = "trim.committing"  # old results are shown shortened
    TRIM_COMMITTED = "trim.committed"
    CHARGE_COMMITTING = "charge.committing"  # what a call for a summary took is the job's to pay
    CHARGE_COMMITTED = "charge.committed"
    SWAP_COMMITTING = "swap.committing"  # a summary takes the place of what it covers
    SWAP_COMMITTED = "swap.committed"
    TRANSITION_COMMITTING = "transition.committing"  # to the next movement
    TRANSITION_COMMITTED = "transition.committed"
    SUBTASK_COMMITTING = "subtask.committing"  # a child begins
    SUBTASK_COMMITTED = "subtask.committed"
    END_COMMITTING = "end.committing"  # the run's own end, whatever state it leaves
    END_COMMITTED = "end.committed"
    SUMMARY_COMMITTING = "summary.committing"  # a job's final summary, or that there is none
    SUMMARY_COMMITTED = "summary.committed"
    SWEEP_COMMITTING = "sweep.committing"  # a dead run's job is taken back
    SWEEP_COMMITTED = "sweep.committed"
    WAKE_COMMITTED = "wake.committed"  # the sweep has marked forgotten jobs as woken
    IMPORT_COMMITTING = (
        "import.committing"  # rows of a job from an archive; the last of them makes it visible
    )
    IMPORT_COMMITTED = "import.committed"
    REMOVE_COMMITTING = "remove.committing"  # an old job is put out of sight, then its rows go, its own last
    REMOVE_COMMITTED = "remove.committed"
    EXPORT_WRITTEN = "export.written"  # a job's folder is whole, beside its place in the archive
    EXPORT_PLACED = "export.placed"
    HOOK_CALLED = "hook.called"  # a hook returned, which is not yet noted
    PUBLISH_SENDING = "publish.sending"
    PUBLISH_SENT = "publish.sent"


class _Fuse:
    """The one armed point of this process, and how often it may still be passed."""

    def __init__(self, armed: str) -> None:
        name, count, how, *_ = [*armed.split(":"), "", ""]
        self.point = CrashPoint(name)
        self._left = int(count or 1)
        self._signal = signal.SIGSTOP if how == "stop" else signal.SIGKILL
        self._lock = threading.Lock()

    def burn(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), self._signal)


_fuse = _Fuse(os.environ[VARIABLE]) if VARIABLE in os.environ else None


def crash_point(point: CrashPoint) -> None:
    """Dies here if this process was told to; else nothing."""
    if _fuse is not None and _fuse.point is point:
        _fuse.burn()
