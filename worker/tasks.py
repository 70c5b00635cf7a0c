"""The Celery tasks. Their one argument is a hint: the id of a job that became due."""

from __future__ import annotations

from celery import Celery

from jobs.wakeups import AGENT_QUEUE, CONTEXT_QUEUE, SUMMARY, TASK_NAMES
from worker.context_run import run_context
from worker.final_summary import run_summary
from worker.process import WorkerProcess
from worker.slices import run_slice


def register_tasks(app: Celery, process: WorkerProcess) -> None:
    """Makes the tasks of `app` work for `process`."""

    @app.task(name=TASK_NAMES[AGENT_QUEUE], ignore_result=True)  # type: ignore[untyped-decorator]  # celery ships no types
    def agent(job_id: str) -> None:
        run_slice(process, job_id)

    @app.task(name=TASK_NAMES[CONTEXT_QUEUE], ignore_result=True)  # type: ignore[untyped-decorator]  # as above
    def context(job_id: str) -> None:
        run_context(process, job_id)

    @app.task(name=TASK_NAMES[SUMMARY], ignore_result=True)  # type: ignore[untyped-decorator]  # as above
    def summary(job_id: str) -> None:
        run_summary(process, job_id)
