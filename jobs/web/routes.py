"""The page's routes. Only `/assets/…` is answered without credentials: it belongs to the login page too."""

from __future__ import annotations

import re

from fastapi import APIRouter, Response
from starlette.responses import FileResponse

from jobs.api.problems import Problem
from jobs.api.routing import JobsReader
from jobs.web import (
    attention,
    job_routes,
    list_routes,
    live_routes,
    new_routes,
    pictures,
    tab_routes,
    worker_routes,
)
from jobs.web.templating import ASSETS

router = APIRouter(include_in_schema=False)
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".txt": "text/plain"}
_NAME = re.compile(r"(?:vendor/)?[A-Za-z0-9][A-Za-z0-9._-]*")


@router.get("/assets/{name:path}")
def asset(name: str) -> Response:
    """A script, a style or a picture of the page. Its URLs change with its content, so it may be kept."""
    file = ASSETS / name
    if not _NAME.fullmatch(name) or file.suffix not in _TYPES or not file.is_file():
        raise Problem(404, "NotFound", "there is no such asset")
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    return FileResponse(file, headers=headers, media_type=_TYPES[file.suffix])


@router.get("/favicon.ico")
def favicon(_: JobsReader) -> Response:
    """What browsers ask for by themselves beside a text that is no page."""
    return asset("icon.svg")


for _module in (
    list_routes,
    new_routes,
    worker_routes,
    attention,
    job_routes,
    tab_routes,
    live_routes,
    pictures,
):
    router.include_router(_module.router)
