"""Pieces, workers, and whether this server can do its work."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from jobs.api.metrics import CONTENT_TYPE, Metrics
from jobs.api.resources import Health, Page, Piece, Readiness, Worker
from jobs.api.routing import Installed, JobsReader, MetricsReader, TaggedRoute, whole
from jobs.broker import answers
from jobs.errors import SostenutoError
from jobs.installation import broker_url
from jobs.views import iso, worker_state
from storage import migrate, registry

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
    _: JobsReader,
    fresh_seconds: Annotated[float, Query(gt=0, le=86_400, description="seen within this time")] = 60,
) -> Response:
    """The worker processes that run now."""
    members = ("name", "queues", "concurrency", "version", "sandbox", "mcp", "problems")
    rows: list[dict[str, Any]] = registry.live_workers(installation.db, fresh_seconds)
    return whole(
        [
            {name: row[name] for name in members}
            | {"state": worker_state(row)}
            | {name: iso(row[name]) for name in ("started_at", "seen_at")}
            for row in rows
        ]
    )


router.include_router(told)
