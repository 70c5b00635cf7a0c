"""What the routes share: the installation, scopes, the job of the path, pages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends, Header, Query, Request, Response
from fastapi.security import HTTPBearer

from jobs import views
from jobs.api.gate import principal_of
from jobs.api.problems import Problem
from jobs.api.schemas import Page
from jobs.api.tokens import Principal, Scope
from jobs.installation import Installation
from jobs.views import JobView

MOST_ITEMS = 1000
HIGHEST = 2**31 - 1  # of the numbers of rows
Limit = Annotated[int, Query(ge=1, le=MOST_ITEMS, description="items on a page")]
After = Annotated[int, Query(ge=0, le=HIGHEST, description="only items after this number")]

IfNoneMatch = Annotated[str | None, Header(description="ETags of what is known already")]
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "unchanged since the ETag in If-None-Match"}
}

_bearer = HTTPBearer(auto_error=False, description="`sostenuto tokens create`")  # for the document alone


def installation_of(request: Request) -> Installation:
    """The installation that the application was made for."""
    installation = request.app.state.installation
    assert isinstance(installation, Installation)
    return installation


def _needs(scope: Scope) -> Callable[..., Principal]:
    def check(request: Request, _: Annotated[Any, Depends(_bearer)]) -> Principal:
        principal = principal_of(request)
        if not principal.may(scope):
            raise Problem(403, "ScopeMissing", f"this needs a token with the scope {scope}")
        return principal

    return check


Installed = Annotated[Installation, Depends(installation_of)]
JobsReader = Annotated[Principal, Depends(_needs(Scope.JOBS_READ))]
JobsWriter = Annotated[Principal, Depends(_needs(Scope.JOBS_WRITE))]
FilesReader = Annotated[Principal, Depends(_needs(Scope.FILES_READ))]
FilesWriter = Annotated[Principal, Depends(_needs(Scope.FILES_WRITE))]
MetricsReader = Annotated[Principal, Depends(_needs(Scope.METRICS_READ))]
Administrator = Annotated[Principal, Depends(_needs(Scope.ADMIN))]


def _read_job(job_id: str, installation: Installed, principal: JobsReader) -> JobView:
    return views.get_job(installation, job_id, principal.sees)


ReadJob = Annotated[JobView, Depends(_read_job)]  # the path's job, where the token may read it; else 404


def page(
    request: Request,
    found: Sequence[Any],
    limit: int,
    told: Callable[[Any], dict[str, Any]],
    **cursor: Callable[[Any], Any],
) -> Page:
    """The first `limit` of what was `found` (one more was asked for), and where it goes on.

    `cursor` names the query parameter that goes on after an item, and how it is told from the item.
    """
    items = list(found[:limit])
    following = None
    if len(found) > limit:
        kept: list[tuple[str, Any]] = [
            (name, value) for name, value in request.query_params.multi_items() if name not in cursor
        ]
        kept += [(name, of(items[-1])) for name, of in cursor.items()]
        following = f"{request.url.path}?{urlencode(kept)}"
    return Page(items=[told(item) for item in items], next=following)


def tagged(content: Page | dict[str, Any], if_none_match: str | None) -> Response:
    """The content with an ETag; 304 without it where the client has that already."""
    text = json.dumps(content.model_dump() if isinstance(content, Page) else content)
    tag = f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'
    known = [given.strip().removeprefix("W/") for given in (if_none_match or "").split(",")]
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if tag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return Response(text, headers=headers, media_type="application/json")


def refuse_scripted(principal: Principal, model: str | None) -> None:
    """A scripted model names a file of the workers' machine: only an administrator may choose one."""
    if model is not None and "scripted:" in model and not principal.is_admin:
        raise Problem(403, "ScopeMissing", "a scripted model needs a token with the scope admin")
