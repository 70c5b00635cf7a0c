"""Text that others wrote, made safe to show: what a model, a file or a person says is never markup or control.

Markdown is rendered with raw HTML off; links lead only to http, https, mailto or a file of the job; pictures are never
loaded. Characters that steer terminals or turn the direction of writing are made visible.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from functools import cache
from typing import Any
from urllib.parse import quote, unquote

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup, escape

from jobs.plain_text import strip_terminal
from jobs.web.code import TEXT_SECONDS, highlighted

MOST_MARKDOWN = 30_000  # characters rendered as Markdown; longer texts are shown as they are
MOST_SHOWN = 60_000  # characters of one text on the page; the whole is a link away
_LONG_CHARS = 2400
_LONG_LINES = 32
# Marks and overrides of direction, invisible separators, tags, and what else makes text read otherwise than it is.
_HIDDEN = re.compile(
    "[\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\x00]"
)
_ABROAD = re.compile(r"(?:https?://|mailto:)[^\s]", re.IGNORECASE)
_OWN_FILE = re.compile(r"(?:\./)?((?:input|output)/[^?#]+)")


def neutral(text: str) -> str:
    """`text` without terminal escapes, and with hidden or direction-turning characters as their numbers."""
    return _HIDDEN.sub(lambda found: f"[U+{ord(found[0]):04X}]", strip_terminal(text))


def is_long(text: str) -> bool:
    """Whether a text is shown collapsed at first."""
    return len(text) > _LONG_CHARS or text.count("\n") > _LONG_LINES


def shortened(text: str, most: int = MOST_SHOWN) -> tuple[str, int]:
    """The beginning of a text, and how many characters were left out."""
    return (text, 0) if len(text) <= most else (text[:most], len(text) - most)


def markdown(text: str, files_url: str | None = None) -> Markup:
    """Markdown as HTML. `files_url` is where links to input/… and output/… lead; None: such links are plain text."""
    source = neutral(text)
    if len(source) > MOST_MARKDOWN:
        return Markup('<pre class="plain">{}</pre>').format(source)
    # Entities (&#x202e;) become characters only while it is rendered.
    return Markup(neutral(_parser().render(source, {"files_url": files_url})))  # noqa: S704  raw HTML is off


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt(
        "commonmark", {"html": False, "linkify": False, "maxNesting": 20}, renderer_cls=_Renderer
    )
    parser.enable(["table", "strikethrough"])
    parser.validateLink = _is_allowed  # type: ignore[method-assign]  # the documented way to replace it
    return parser


def _is_allowed(url: str) -> bool:
    return bool(_ABROAD.match(url) or _own_file(url))


def _own_file(url: str) -> str | None:
    match = _OWN_FILE.fullmatch(url)
    path = unquote(match[1]) if match else None
    return path if path and ".." not in path.split("/") else None


def _target(url: str, env: EnvType) -> dict[str, str]:
    """The attributes of a link; none where it leads nowhere."""
    path = _own_file(url)
    if path is not None:
        base = env.get("files_url")
        return {"href": f"{base}/{quote(path)}"} if base else {}
    return {"href": url, "target": "_blank", "rel": "noopener noreferrer nofollow"}


class _Renderer(RendererHTML):
    """CommonMark's HTML, but for what leads or reaches outside, and for styles in place, which the page forbids."""

    def link_open(self, tokens: Sequence[Token], index: int, _options: OptionsDict, env: EnvType) -> str:
        """A link, where it leads to what is allowed; else plain text."""
        attributes = _target(str(tokens[index].attrGet("href") or ""), env)
        title = tokens[index].attrGet("title")
        return f"<a{_written(attributes | ({'title': str(title)} if title else {}))}>"

    def fence(self, tokens: Sequence[Token], index: int, _options: OptionsDict, env: EnvType) -> str:
        """A block of code, its parts told apart where its language is known, as long as that takes no time to speak of."""
        language = tokens[index].info.split(maxsplit=1)[0] if tokens[index].info.strip() else ""
        began, left = time.thread_time(), env.get("code_seconds", TEXT_SECONDS)
        code = highlighted(tokens[index].content, language) if left > 0 else None
        env["code_seconds"] = left - (time.thread_time() - began)
        shown = escape(tokens[index].content) if code is None else code
        return f'<pre tabindex="0"><code>{shown}</code></pre>\n'  # it may be wider than its place: the keyboard scrolls it

    def code_block(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
        """Code by its indentation: as a fence without a language."""
        return self.fence(tokens, index, options, env)

    def image(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
        """A link in place of the picture: nothing is loaded because a model wrote it."""
        url = str(tokens[index].attrGet("src") or "")
        name = self.renderInlineAsText(tokens[index].children or [], options, env) or url
        return f'<a class="picture"{_written(_target(url, env))}>{escape(name)}</a>'

    def th_open(self, tokens: Sequence[Token], index: int, _options: OptionsDict, _env: EnvType) -> str:
        """A table's cell; its alignment is a class."""
        side = str(tokens[index].attrGet("style") or "").removeprefix("text-align:")
        place = f' class="{side}"' if side in ("left", "center", "right") else ""
        return f"<{tokens[index].tag}{place}>"

    td_open = th_open


def _written(attributes: dict[str, str]) -> str:
    return "".join(f' {name}="{escape(value)}"' for name, value in attributes.items())


def clipped(value: Any, most: int = 200) -> str:
    """A value on one line of at most `most` characters."""
    line = " ".join(str(value).split())
    return line if len(line) <= most else line[: most - 1] + "…"
