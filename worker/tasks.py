"""The Celery tasks. Their one argument is a hint: the id of a job that became due."""

from __future__ import annotations

from contextlib import suppress

from celery import Celery, current_task

from jobs.wakeups import AGENT_QUEUE, CONTEXT_QUEUE, SUMMARY, TASK_NAMES
from worker.bootsteps import send_task_event
from worker.context_run import run_context
from worker.final_summary import run_summary
from worker.monitoring import Sight
from worker.process import WorkerProcess
from worker.slices import run_slice

NOTHING = "nothing was due"


def register_tasks(app: Celery, process: WorkerProcess) -> None:
    """Makes the tasks of `app` work for `process`. What they return is for monitors: there is no result backend."""
    process.show = _show

    @app.task(name=TASK_NAMES[AGENT_QUEUE], ignore_result=True)  # type: ignore[untyped-decorator]  # celery ships no types
    def agent(job_id: str) -> str:
        return run_slice(process, job_id) or NOTHING

    @app.task(name=TASK_NAMES[CONTEXT_QUEUE], ignore_result=True)  # type: ignore[untyped-decorator]  # as above
    def context(job_id: str) -> str:
        return run_context(process, job_id) or NOTHING

    @app.task(name=TASK_NAMES[SUMMARY], ignore_result=True)  # type: ignore[untyped-decorator]  # as above
    def summary(job_id: str) -> str:
        return run_summary(process, job_id) or NOTHING


def _show(seen: Sight) -> None:
    """The job that this thread's task was answered with, as Celery shows a task: its state, arguments, keywords."""
    if current_task:
        # Looking on is not worth a run: whatever the transport raises, the work goes on.
        with suppress(Exception):
            send_task_event(seen.doing, current_task.request.id, args=seen.arguments, kwargs=seen.details)
