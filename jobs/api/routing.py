"""What the routes share: the installation, scopes, the job of the path, pages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends, Query, Request, Response
from fastapi.routing import APIRoute
from fastapi.security import APIKeyCookie, HTTPBearer

from jobs import views
from jobs.api.gate import principal_of
from jobs.api.problems import Problem
from jobs.api.sessions import COOKIE
from jobs.api.tokens import Principal, Scope
from jobs.installation import Installation
from jobs.views import JobView

MOST_ITEMS = 1000
HIGHEST = 2**31 - 1  # of the numbers of rows
Limit = Annotated[int, Query(ge=1, le=MOST_ITEMS, description="items on a page")]
After = Annotated[int, Query(ge=0, le=HIGHEST, description="only items after this number")]

NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "unchanged since the ETag in If-None-Match"}
}
_IF_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "description": "ETags of what is known already",
    "schema": {"type": "string"},
}

# For the document alone: the gate has asked for them.
_bearer = HTTPBearer(auto_error=False, scheme_name="token", description="`sostenuto tokens create`")
_cookie = APIKeyCookie(
    name=COOKIE,
    auto_error=False,
    scheme_name="session",
    description="from `POST /login`; what changes something needs the header X-CSRF-Token too",
)


def installation_of(request: Request) -> Installation:
    """The installation that the application was made for."""
    installation = request.app.state.installation
    assert isinstance(installation, Installation)
    return installation


def _signed_in(
    request: Request, _: Annotated[Any, Depends(_bearer)], __: Annotated[Any, Depends(_cookie)]
) -> Principal:
    return principal_of(request)


SignedIn = Annotated[Principal, Depends(_signed_in)]


def _needs(scope: Scope) -> Callable[..., Principal]:
    def check(principal: SignedIn) -> Principal:
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


class TaggedRoute(APIRoute):
    """A route whose JSON has an ETag when it is read; who has it already gets 304 without it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        if "GET" in (options.get("methods") or ()):
            options["responses"] = NOT_MODIFIED | (options.get("responses") or {})
            options["openapi_extra"] = {"parameters": [_IF_NONE_MATCH]} | (options.get("openapi_extra") or {})
        super().__init__(*arguments, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, its answer looked at."""
        handle = super().get_route_handler()

        async def tagged(request: Request) -> Response:
            answer = await handle(request)
            if (
                request.method != "GET"
                or answer.status_code != 200
                or answer.media_type != "application/json"
            ):
                return answer
            tag = f'"{hashlib.sha256(answer.body).hexdigest()[:32]}"'
            headers = {"ETag": tag, "Cache-Control": "no-cache"}
            if is_known(tag, request.headers.get("if-none-match")):
                return Response(status_code=304, headers=headers)
            answer.headers.update(headers)
            return answer

        return tagged


def is_known(tag: str, if_none_match: str | None) -> bool:
    """Whether the client that sent this header has what the tag stands for."""
    known = [given.strip().removeprefix("W/") for given in (if_none_match or "").split(",")]
    return tag in known or "*" in known


def answer(content: Any, status_code: int = 200) -> Response:
    """JSON as it is, without the framework's checks of what we made ourselves."""
    return Response(json.dumps(content), status_code, media_type="application/json")


def page(
    request: Request,
    found: Sequence[Any],
    limit: int,
    told: Callable[[Any], dict[str, Any]],
    **cursor: Callable[[Any], Any],
) -> Response:
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
    return answer({"items": [told(item) for item in items], "next": following})


def whole(items: Sequence[dict[str, Any]]) -> Response:
    """A list that is always told at once."""
    return answer({"items": list(items), "next": None})


def refuse_scripted(principal: Principal, model: str | None) -> None:
    """A scripted model names a file of the workers' machine: only an administrator may choose one."""
    if model is not None and "scripted:" in model and not principal.is_admin:
        raise Problem(403, "ScopeMissing", "a scripted model needs a token with the scope admin")
