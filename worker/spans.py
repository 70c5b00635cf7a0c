"""The spans of a worker, named as OpenTelemetry's conventions for generative AI have it; see jobs.tracing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from jobs.tracing import TRACE, span
from storage import jobs as job_store
from worker.model.types import ModelReply, ModelRequest

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from worker.process import WorkerProcess


@contextmanager
def run_span(
    process: WorkerProcess, queue: str, row: Mapping[str, Any], run_id: str
) -> Iterator[Span | None]:
    """A run of a job: a part of the trace of its submit, whichever wake-up it answers."""
    if process.settings.traces_endpoint is None:
        yield None
        return
    first = next(iter(job_store.list_events(process.db, row["id"], limit=1)), None)
    about = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": row["piece"],
        "sostenuto.queue": queue,
        "sostenuto.job.id": row["id"],
        "sostenuto.run.id": run_id,
        "sostenuto.movement": row["movement"],
        "sostenuto.attempt": row["attempt"],
    }
    parent = (first.data or {}).get(TRACE) if first is not None else None
    with span(f"invoke_agent {row['piece']}", about, parent) as begun:
        yield begun


def model_span(request: ModelRequest) -> AbstractContextManager[Span | None]:
    """A call of a model."""
    about = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": request.model,
        "gen_ai.request.max_tokens": request.max_output_tokens,
        "gen_ai.conversation.id": request.label.partition("/")[0] or None,
        "sostenuto.step": request.step,
    }
    return span(f"chat {request.model}", about)


def reply_attributes(reply: ModelReply) -> dict[str, Any]:
    """What a reply adds to its call's span: nothing that it says."""
    return {
        "gen_ai.response.model": reply.model,
        "gen_ai.response.finish_reasons": [reply.finish_reason] if reply.finish_reason else None,
        "gen_ai.usage.input_tokens": reply.usage.prompt_tokens,
        "gen_ai.usage.output_tokens": reply.usage.completion_tokens,
    }


def tool_span(job_id: str, tool: str, call_id: str) -> AbstractContextManager[Span | None]:
    """A tool at work."""
    about = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.call.id": call_id,
        "sostenuto.job.id": job_id,
    }
    return span(f"execute_tool {tool}", about)
