"""The HTTP API as an ASGI application over an opened installation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from starlette.types import ASGIApp

from jobs.api import (
    audit_routes,
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
from jobs.web import routes as page_routes

OPENAPI_PATH = "/api/openapi.json"
_ABOUT = """\
Durable LLM agent jobs. Every request but `GET /healthz` needs `Authorization: Bearer sos_…`, or the cookie
of a session; errors are `application/problem+json`; lists are pages whose `next` is the URL of the following one.
"""
_PROBLEM = {
    "description": "a problem",
    "content": {
        problems.MEDIA_TYPE: {
            "schema": {
                "type": "object",
                "required": ["type", "title", "status", "code", "detail"],
                "properties": {
                    "type": {"type": "string"},
                    "title": {"type": "string"},
                    "status": {"type": "integer"},
                    "code": {"type": "string"},
                    "detail": {"type": "string"},
                    "hint": {"type": "string"},
                    "errors": {"type": "array", "items": {"type": "object"}},
                },
            },
            "example": {
                "type": "urn:sostenuto:problem:job-not-found",
                "title": "Not Found",
                "status": 404,
                "code": "JobNotFound",
                "detail": "there is no job 42",
            },
        }
    },
}


def create_api(installation: Installation) -> FastAPI:
    """The routes and their errors, without the gate before them: for the OpenAPI document, and for `create_app`."""

    @asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[None]:
        api.state.watcher = Watcher(installation)  # belongs to the loop that serves
        yield

    api = FastAPI(
        title="Sostenuto",
        version=version("sostenuto"),
        description=_ABOUT,
        openapi_url=OPENAPI_PATH,
        docs_url=None,  # its pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        responses={"4XX": _PROBLEM, "5XX": _PROBLEM},
    )
    api.state.installation = installation
    problems.install(api, installation.settings)
    api.state.throttle = Throttle()
    api.state.metrics = Metrics(installation)
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
    return api


def create_app(installation: Installation, hosts: Collection[str] = ()) -> ASGIApp:
    """What a server runs. `hosts` are names, beside this machine's own, under which it may be asked."""
    api = create_api(installation)
    return Gate(api, installation, hosts, api.state.metrics)
