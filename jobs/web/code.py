"""Code with its parts told apart by class, for a static style sheet. What is not known, or long, stays plain text."""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import PurePosixPath

from markupsafe import Markup
from pygments import highlight  # type: ignore[import-untyped]  # its stubs are a package of their own; three calls are made
from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]  # as above
from pygments.lexer import Lexer  # type: ignore[import-untyped]  # as above
from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]  # as above

MOST_CODE = 20_000  # characters; a model decides what is highlighted, so it is bounded
MOST_LINE = 2_000

# Only these: each was tried with hostile text for the time that it takes.
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


@lru_cache(maxsize=1024)
def highlighted(text: str, language: str) -> Markup | None:
    """The code as HTML, escaped, in spans with classes; None where it is to be shown plain."""
    name = _NAMES.get(language.lower())
    if name is None or len(text) > MOST_CODE or max(map(len, text.splitlines()), default=0) > MOST_LINE:
        return None
    return Markup(highlight(text, _lexer(name), _FORMATTER))  # noqa: S704  the formatter escapes all text


def language_of_file(path: str) -> str:
    """The language that a file's name tells; empty where none."""
    name = PurePosixPath(path).name.lower()
    return name if name in _NAMES else name.rpartition(".")[2] if "." in name else ""
