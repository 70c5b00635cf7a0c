"""The login page. It needs nothing but itself and `/assets/`, for it is shown to people who are not let in yet."""

from __future__ import annotations

from datetime import UTC

from starlette.requests import HTTPConnection

from jobs.web.templating import render
from jobs.web.words import Words, language_of


def login_page(asker: HTTPConnection, *, failed: bool = False) -> str:
    """The page's HTML in the asker's language. `failed`: the last code did not work, and the page says so."""
    words = Words(language_of(asker))
    problem = words("login.wrong") if failed else ""
    return render("login.html", words, UTC, problem=problem, csrf="", here="/login", language_url="?lang=")
