"""What the page's routes share: answering with a template in the asker's language."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from jobs.api.gate import csrf_token, principal_of
from jobs.api.problems import status_of_error
from jobs.api.routing import installation_of
from jobs.errors import SostenutoError
from jobs.web.templating import render
from jobs.web.words import COOKIE, words_for

_YEAR = 365 * 86_400


def page(request: Request, template: str, status_code: int = 200, **values: Any) -> HTMLResponse:
    """A whole page, or a part of one, for who asked. A language chosen in the URL is remembered."""
    words = words_for(request)
    query = [(name, value) for name, value in request.query_params.multi_items() if name != "lang"]
    html = render(
        template,
        words,
        installation_of(request).settings.zone(),
        me=principal_of(request),
        csrf=csrf_token(request),
        here=request.url.path,
        language_url=f"?{urlencode([*query, ('lang', '')])}",
        **values,
    )
    headers = {"Content-Language": words.language, "Vary": "Accept-Language, Cookie"}
    answer = HTMLResponse(html, status_code, headers)
    if request.query_params.get("lang") == words.language:
        answer.set_cookie(COOKIE, words.language, max_age=_YEAR, path="/", httponly=True, samesite="lax")
    return answer


class PageRoute(APIRoute):
    """A route whose errors are pages for who opened it in a browser; scripts and programs get problem documents."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler with errors told."""
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except (SostenutoError, HTTPException, RequestValidationError) as error:
                if request.method != "GET" or "text/html" not in request.headers.get("accept", ""):
                    raise
                return _error_page(request, error)

        return handled


def _error_page(request: Request, error: Exception) -> HTMLResponse:
    status = status_of_error(error)
    key = f"error.{status}" if status in (403, 404, 503) else "error.other"
    return page(request, "error.html", status, status=status, told=words_for(request)(key))
