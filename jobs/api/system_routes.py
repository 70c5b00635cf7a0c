"""Pieces, workers, and whether this server can do its work."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from jobs.api.metrics import CONTENT_TYPE, Metrics
from jobs.api.resources import Cooldown, Health, Page, Piece, Queue, Readiness, Worker
from jobs.api.routing import Installed, JobsReader, MetricsReader, TaggedRoute, whole
from jobs.broker import answers
from jobs.errors import SostenutoError
from jobs.fleet import workers_now
from jobs.installation import broker_url
from jobs.views import iso, worker_state
from storage import migrate, queues
from storage.queues import LiveRun

router = APIRouter(tags=["system"])
told = APIRouter(prefix="/api", tags=["system"], route_class=TaggedRoute)


@router.get("/healthz", response_model=Health)
async def get_health() -> dict[str, str]:
    """The process answers. The only route without credentials."""
    return {"status": "ok"}


@router.get(
    "/readyz",
    response_model=Readiness,
    responses={503: {"model": Readiness, "description": "the database is not usable"}},
)
def get_readiness(installation: Installed, _: JobsReader, response: Response) -> dict[str, str]:
    """Whether jobs can be accepted. They can without a broker too: workers then find them at their next sweep."""
    try:
        migrate.check(installation.db)
    except SostenutoError as error:
        response.status_code = 503
        database = type(error).__name__
    else:
        database = "ok"
    reached = answers(broker_url(installation.settings))
    return {
        "status": "ok" if database == "ok" else "unavailable",
        "database": database,
        "broker": "ok" if reached else "unreachable",
    }


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def get_metrics(request: Request, _: MetricsReader) -> Response:
    """Figures of the installation and of this server, for Prometheus; needs the scope `metrics:read`."""
    found = request.app.state.metrics
    assert isinstance(found, Metrics)
    return Response(found.text(), media_type=CONTENT_TYPE)


@told.get("/pieces", response_model=Page[Piece])
def list_pieces(installation: Installed, _: JobsReader) -> Response:
    """The workflows that jobs can run."""
    return whole(
        [
            {
                "name": entry.name,
                "origin": entry.origin,
                "description": entry.piece and entry.piece.description,
                "valid": not entry.problems,
            }
            for entry in installation.library.entries()
        ]
    )


@told.get("/workers", response_model=Page[Worker])
def list_workers(
    installation: Installed,
    principal: JobsReader,
    fresh_seconds: Annotated[float, Query(gt=0, le=86_400, description="seen within this time")] = 60,
) -> Response:
    """The worker processes that run now, with those of their runs that are of jobs that the asker may see."""
    members = ("name", "queues", "concurrency", "version", "sandbox", "mcp", "problems")
    found, _ = workers_now(installation, principal.sees, fresh_seconds)
    return whole(
        [
            {name: worker.row[name] for name in members}
            | {name: iso(worker.row[name]) for name in ("started_at", "seen_at")}
            | {
                "state": worker_state(worker.row),
                "busy": worker.busy,
                "runs": [_run(run) for run in worker.runs],
            }
            for worker in found
        ]
    )


def _run(run: LiveRun) -> dict[str, str]:
    times = {name: iso(getattr(run, name)) for name in ("claimed_at", "lease_expires_at")}
    return {"job_id": run.job_id, "kind": run.kind} | times


@told.get("/queues", response_model=Page[Queue])
def list_queues(installation: Installed, _: JobsReader) -> Response:
    """How much work waits for workers, by kind."""
    return whole([asdict(depth) for depth in queues.queue_depths(installation.db)])


@told.get("/cooldowns", response_model=Page[Cooldown])
def list_cooldowns(installation: Installed, _: JobsReader) -> Response:
    """The endpoints that no worker asks now, and until when."""
    found = queues.list_cooldowns(installation.db)
    return whole([asdict(cooldown) | {"until": iso(cooldown.until)} for cooldown in found])


router.include_router(told)
