"""Pieces that cannot work without a server: told before the job begins, not by an agent that lacks its tools."""

from __future__ import annotations

from jobs.reasons import Reason
from jobs.states import Event
from worker.endings import Ending, end
from worker.job_run import JobRun


def end_if_server_missing(job: JobRun) -> Ending | None:
    """Fails a job whose piece requires a server that this worker cannot offer; the server is asked once more before."""
    servers = job.process.mcp
    wanted = job.piece.required_mcp
    if set(wanted) <= set(servers.names):
        return None
    servers.ask_missing()
    missing = [name for name in wanted if name not in servers.names]
    if not missing:
        return None
    return end(
        job,
        Event.FAIL,
        Reason.MCP_SERVER_MISSING,
        {"server": missing[0], "detail": servers.problem_of(missing[0])},
    )
