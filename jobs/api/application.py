"""The HTTP API as an ASGI application over an opened installation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from starlette.types import ASGIApp

from jobs.api import (
    audit_routes,
    document,
    file_routes,
    job_routes,
    problems,
    record_routes,
    session_routes,
    stream_routes,
    system_routes,
)
from jobs.api.gate import Gate
from jobs.api.metrics import Metrics
from jobs.api.sessions import Throttle
from jobs.api.watching import Watcher
from jobs.installation import Installation
from jobs.tracing import trace_requests
from jobs.web import routes as page_routes
from jobs.web.counts import Counts

OPENAPI_PATH = "/api/openapi.json"


def create_api(installation: Installation) -> FastAPI:
    """The routes and their errors, without the gate before them: for the OpenAPI document, and for `create_app`."""

    @asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[None]:
        api.state.watcher = Watcher(installation)  # belongs to the loop that serves
        yield

    api = FastAPI(
        title="Sostenuto",
        version=version("sostenuto"),
        description=document.ABOUT,
        openapi_url=OPENAPI_PATH,
        docs_url=None,  # its pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        generate_unique_id_function=document.operation_id,
        responses=document.PROBLEMS,
    )
    api.state.installation = installation
    problems.install(api, installation.settings)
    api.state.throttle = Throttle()
    api.state.metrics = Metrics(installation)
    api.state.counts = Counts(installation.db)
    routes = (
        job_routes,
        record_routes,
        stream_routes,
        file_routes,
        system_routes,
        session_routes,
        audit_routes,
        page_routes,
    )
    for module in routes:
        api.include_router(module.router)
    document.complete(api)
    return api


def create_app(installation: Installation, hosts: Collection[str] = ()) -> ASGIApp:
    """What a server runs. `hosts` are names, beside this machine's own, under which it may be asked."""
    api = create_api(installation)
    trace_requests(api)
    return Gate(api, installation, hosts, api.state.metrics)
