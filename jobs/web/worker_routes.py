"""The page of workers: who runs what, what waits, which endpoints rest."""

from __future__ import annotations

import hashlib
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from jobs.api.routing import Installed, JobsReader
from jobs.fleet import Fleet, fleet_now
from jobs.web.pages import PageRoute, page

router = APIRouter(route_class=PageRoute)


@router.get("/workers")
def show_workers(
    request: Request,
    installation: Installed,
    principal: JobsReader,
    rows: Annotated[str | None, Query(max_length=64)] = None,
) -> Response:
    """The page. `rows` asks for what changes by itself alone, and only if it is other than what has this mark."""
    fleet = fleet_now(installation, principal.sees)
    mark = hashlib.sha256(repr(_shape(fleet)).encode(errors="replace")).hexdigest()[:16]
    if rows == mark:
        return Response(status_code=204)
    now = installation.db.clock()
    template = "workers.html" if rows is None else "workers_part.html"
    return page(request, template, fleet=fleet, mark=mark, now=now, flower=installation.settings.flower_url)


def _shape(fleet: Fleet) -> list[object]:
    """What a change of is worth sending: not the ages, which browsers count on by themselves, nor a lease renewed in time."""
    return [
        [(worker.row["name"], worker.draining, worker.row["problems"], worker.hidden) for worker in fleet.workers],
        [(run.job_id, run.worker, run.movement, run.title, run.lease_seconds < 0) for worker in fleet.workers for run in worker.runs],
        [(run.job_id, run.worker) for run in fleet.lost],
        [(queue.kind, queue.due, queue.later, int(queue.oldest_seconds) // 10) for queue in fleet.queues],
        [(cooldown.endpoint, cooldown.until) for cooldown in fleet.cooldowns],
    ]  # fmt: skip
