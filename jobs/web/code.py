"""Code with its parts told apart by class, for a static style sheet. What is not known, or long, stays plain text."""

from __future__ import annotations

import io
import time
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import PurePosixPath
from typing import Any

from markupsafe import Markup
from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]  # its stubs are a package of their own
from pygments.lexer import Lexer  # type: ignore[import-untyped]  # as above
from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]  # as above

MOST_CODE = 10_000  # characters; a model decides what is highlighted, so it is bounded
MOST_LINE = 2_000
BLOCK_SECONDS, TEXT_SECONDS = 0.06, 0.12  # of work: of one block, and of all blocks of a text

LANGUAGES = {
    "python": ("py",), "pycon": (), "javascript": ("js", "mjs"), "jsx": (), "typescript": ("ts",), "tsx": (), "json": ("jsonl",),
    "yaml": ("yml",), "toml": (), "ini": ("cfg",), "bash": ("sh", "shell", "zsh"), "console": (), "sql": (),
    "html": ("htm",), "xml": ("svg",), "css": (), "scss": (), "diff": ("patch",), "rust": ("rs",), "go": (), "java": (),
    "c": ("h",), "cpp": ("c++", "cc", "hpp"), "csharp": ("cs", "c#"), "ruby": ("rb",), "php": (), "kotlin": ("kt",),
    "swift": (), "docker": ("dockerfile",), "make": ("makefile",), "r": (), "lua": (),
}  # fmt: skip
_NAMES = {alias: name for name, aliases in LANGUAGES.items() for alias in (name, *aliases)}
_FORMATTER = HtmlFormatter(nowrap=True, classprefix="k-")


@cache
def _lexer(name: str) -> Lexer:
    return get_lexer_by_name(name, stripnl=False, ensurenl=False)


class _TooSlow(Exception):
    """Text on which the lexer goes back and forth."""


def _in_time(tokens: Iterable[Any], seconds: float) -> Iterator[Any]:
    end = time.thread_time() + seconds
    for token in tokens:
        if time.thread_time() > end:
            raise _TooSlow
        yield token


@lru_cache(maxsize=1024)
def highlighted(
    text: str, language: str, most: int = MOST_CODE, seconds: float = BLOCK_SECONDS
) -> Markup | None:
    """The code as HTML, escaped, in spans with classes; None where it is to be shown plain.

    So is text on which it would take longer than `seconds` of work: a lexer's time can grow with the text's square.
    """
    name = _NAMES.get(language.lower())
    if name is None or len(text) > most or max(map(len, text.splitlines()), default=0) > MOST_LINE:
        return None
    file = io.StringIO()
    try:
        _FORMATTER.format(_in_time(_lexer(name).get_tokens(text), seconds), file)
    except _TooSlow:
        return None
    return Markup(file.getvalue())  # noqa: S704  the formatter escapes all text


def language_of_file(path: str) -> str:
    """The language that a file's name tells; empty where none."""
    name = PurePosixPath(path).name.lower()
    return name if name in _NAMES else name.rpartition(".")[2] if "." in name else ""
