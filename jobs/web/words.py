"""The page's own words, in English and Japanese: `words/en.toml` and `words/ja.toml`, with the same keys."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from starlette.requests import HTTPConnection

LANGUAGES = ("en", "ja")
COOKIE = "sostenuto_language"
_FOLDER = Path(__file__).parent / "words"


@cache
def table(language: str) -> dict[str, str]:
    """All words of a language, by `section.key`."""
    document = tomllib.loads((_FOLDER / f"{language}.toml").read_text(encoding="utf-8"))
    return {f"{section}.{key}": text for section, keys in document.items() for key, text in keys.items()}


class Words:
    """Words of one language; `words("list.empty", count=3)` fills in what the text names."""

    def __init__(self, language: str) -> None:
        self.language = language
        self._table = table(language)

    def __call__(self, key: str, /, **values: Any) -> str:
        text = self._table[key]
        return text.format(**values) if values else text

    def get(self, key: str, default: str | None = None) -> str | None:
        """The words of a key that may not be there."""
        return self._table.get(key, default)


def language_of(request: HTTPConnection) -> str:
    """The language a request is answered in: its own choice (`?lang=`, the cookie), else what its browser prefers."""
    for chosen in (request.query_params.get("lang"), request.cookies.get(COOKIE)):
        if chosen in LANGUAGES:
            return str(chosen)
    return preferred(request.headers.get("accept-language", ""))


def preferred(header: str) -> str:
    """The best language of an Accept-Language header; English where it names none of ours."""
    best, best_weight = LANGUAGES[0], 0.0
    for part in header[:1000].split(","):
        tag, _, weight = part.strip().partition(";")
        language = tag.strip().lower().partition("-")[0]
        try:
            wanted = float(weight.strip().removeprefix("q=") or 1)
        except ValueError:
            continue
        if language in LANGUAGES and wanted > best_weight:
            best, best_weight = language, wanted
    return best


def words_for(request: HTTPConnection) -> Words:
    """The words of the request's language."""
    return Words(language_of(request))
