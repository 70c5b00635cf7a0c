"""The page's routes. Only `/assets/…` is answered without credentials: it belongs to the login page too."""

from __future__ import annotations

from fastapi import APIRouter, Response

from jobs.web.login import SCRIPT

router = APIRouter(include_in_schema=False)


@router.get("/assets/login.js")
def login_script() -> Response:
    """Takes the code from the URL's fragment, which browsers do not send."""
    return Response(SCRIPT, media_type="text/javascript; charset=utf-8")
