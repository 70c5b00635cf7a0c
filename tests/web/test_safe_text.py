"""Markdown of strangers as HTML, and characters that are not what they seem."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.web.code import highlighted
from jobs.web.safe_text import MOST_MARKDOWN, _parser, markdown, neutral
from tests.web.hostile import TEXTS

TAGS = {
    "p", "a", "em", "strong", "s", "code", "pre", "ul", "ol", "li", "blockquote", "h1", "h2", "h3", "h4", "h5", "h6",
    "hr", "br", "table", "thead", "tbody", "tr", "th", "td",
}  # fmt: skip
ATTRIBUTES = {"href", "title", "rel", "target", "class", "start"}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def _elements(text: str, files: str | None = "/api/jobs/1/files") -> list[tuple[str, dict[str, str | None]]]:
    reader = _Reader()
    reader.feed(markdown(text, files))
    return reader.found


def _assert_tame(text: str) -> None:
    for tag, attributes in _elements(text):
        assert tag in TAGS
        assert attributes.keys() <= ATTRIBUTES | ({"tabindex"} if tag == "pre" else set())
        assert attributes.get("tabindex", "0") == "0"
        href = attributes.get("href")
        if href is not None:
            assert re.match(r"(https?://|mailto:|/api/jobs/1/files/(input|output)/)", href, re.IGNORECASE), (
                href
            )


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_only_known_elements_and_links_come_out(text: str) -> None:
    _assert_tame(text)


@given(
    st.lists(
        st.sampled_from([*TEXTS, "](", "[x", "<", '"', "javascript:", "`", "\n", "![", ")", "&#x3a;", "\\"])
    ).map("".join)
)
def test_no_mixture_of_them_breaks_out(text: str) -> None:
    _assert_tame(text)


@given(st.text())
def test_any_text_is_tame(text: str) -> None:
    _assert_tame(text)


def test_what_people_write_is_formatted() -> None:
    html = markdown("# A\n\n**b** and `c`\n\n- one\n- two\n\n| x | y |\n|:--|--:|\n| 1 | 2 |\n")
    for part in (
        "<h1>A</h1>",
        "<strong>b</strong>",
        "<code>c</code>",
        "<li>one</li>",
        '<td class="right">2</td>',
    ):
        assert part in html
    assert "style" not in html


@pytest.mark.parametrize(
    ("written", "leads"),
    [
        ("[r](output/a%20b.md)", "/api/jobs/1/files/output/a%20b.md"),
        ("[r](./input/x.csv)", "/api/jobs/1/files/input/x.csv"),
        ("![r](output/chart.png)", "/api/jobs/1/files/output/chart.png"),
        ("[r](https://e.example/?a=1&b=2)", "https://e.example/?a=1&b=2"),
        ("[r](mailto:a@e.example)", "mailto:a@e.example"),
        ("[r](output/../../secret)", None),
        ("[r](output/%2e%2e/x)", None),
        ("[r](logs/x)", None),
        ("[r](/api/tokens)", None),
        ("[r](//e.example/)", None),
        ("[r](javascript:x)", None),
        ("[r](data:text/html,x)", None),
    ],
)
def test_where_links_lead(written: str, leads: str | None) -> None:
    found = [attributes["href"] for tag, attributes in _elements(written) if tag == "a"]
    assert found == ([leads] if leads else [])


def test_links_to_files_are_text_where_there_are_none() -> None:
    assert [attributes for tag, attributes in _elements("[r](output/x)", None) if tag == "a"] == [{}]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]52;c;ZXZpbA==\x07after", "after"),
        ("a\u202eb\u2066c", "a[U+202E]b[U+2066]c"),
        ("zero\u200bwidth", "zero[U+200B]width"),
        ("nul\x00l", "nul[U+0000]l"),
        ("日本語\n\ttext", "日本語\n\ttext"),
        ("👩\u200d💻", "👩\u200d💻"),
    ],
)
def test_hidden_characters_are_shown_or_gone(text: str, shown: str) -> None:
    assert neutral(text) == shown


def test_entities_hide_nothing() -> None:
    assert "\u202e" not in markdown("&#x202e;abc &#8238; &#x1b;[31m")


@pytest.mark.parametrize(
    "text", [">" * 20_000, "[" * 20_000, "*a " * 9000, "`" * 25_000, "![" * 9000, "<a" * 12_000]
)
def test_deep_and_strange_texts_are_answered_soon(text: str) -> None:
    """In time that grows with the text, not with its square: ten times as long is far from a hundred times as slow."""
    times = []
    for part in (text[:1500], text[: min(15_000, len(text))]):
        began = time.thread_time()
        markdown(part)
        times.append(time.thread_time() - began)
    assert times[1] <= 60 * max(times[0], 0.002)


def test_what_is_too_long_for_markdown_is_shown_as_it_is() -> None:
    html = markdown("**x** <b>" * MOST_MARKDOWN)
    assert html.startswith('<pre class="plain">**x** &lt;b&gt;')


def test_code_is_told_apart_and_stays_text() -> None:
    html = str(markdown("```python\nx = '<b>'  # </code><script>\n```"))
    assert """<span class="k-s1">'&lt;b&gt;'</span>""" in html
    assert "<script" not in html
    for info in ("", "no-such-language", "<i>", 'js"onload="x', "python x=1"):
        html = str(markdown(f"```{info}\n<b>\n```"))
        assert "<b>" not in html
        assert "onload" not in html


def test_code_that_takes_too_long_or_is_too_much_is_shown_plain() -> None:
    """A model chooses what is highlighted: what is out of time, or long, is text like any other."""
    code = "def f(): pass\n"
    assert highlighted(code, "python") is not None
    assert highlighted(code, "python", seconds=-1.0) is None
    assert highlighted(code * 1000, "python") is None
    assert highlighted(f"x = '{'a' * 3000}'", "python") is None
    spent = _parser().render("```python\nx = 1\n```", {"code_seconds": 0.0})
    assert spent == '<pre tabindex="0"><code>x = 1\n</code></pre>\n'
