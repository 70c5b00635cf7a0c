"""What a command printed, as the model sees it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.plain_text import strip_terminal
from worker.tokens import estimate_tokens
from worker.tools.output import Output


def _shown(*chunks: bytes, budget: int = 10_000) -> str:
    output = Output(budget)
    for chunk in chunks:
        output.feed(chunk)
    return output.text()


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (b"a\0b\n", "a␀b\n"),
        (b"\x1b[31mred\x1b[0m \x1b]0;title\x07x\x1b]52;c;aGk=\x1b\\y\n", "red xy\n"),
        (b"10%\r50%\r100%\ndone\n", "100%\ndone\n"),
        (b"crlf\r\nline\r\n", "crlf\nline\n"),
        (b"last\rframe", "frame"),
        (b"ends with cr\r", "ends with cr"),
        (b"\xff\xfe bad \xe6\xbc", "\ufffd\ufffd bad \ufffd"),
        ("日本".encode(), "日本"),
        (b"bell\x07\x08 tab\t\n", "bell tab\t\n"),
    ],
)
def test_text_is_cleaned(printed: bytes, shown: str) -> None:
    assert _shown(printed) == shown
    assert _shown(*(printed[at : at + 1] for at in range(len(printed)))) == shown


def test_redraw_frames_collapse_before_anything_is_cut() -> None:
    """5,000 progress frames."""
    frames = [f"\x1b[2K\r{at}/5000 {'#' * 60}".encode() for at in range(5001)]
    assert _shown(*frames, b"\nok\n", budget=300) == f"5000/5000 {'#' * 60}\nok\n"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from([b"line\n", b"x" * 999, "漢字🎉".encode(), b"\r\n", b"\xff", b"\x1b[1m"]),
        max_size=400,
    )
)
def test_the_budget_holds_and_the_head_is_kept(chunks: list[bytes]) -> None:
    text = _shown(b"HEAD\n", *chunks, b"\nTAIL", budget=400)
    assert estimate_tokens(text) <= 400
    assert text.startswith("HEAD\n")
    assert text.endswith("TAIL")


def test_left_out_bytes_are_counted() -> None:
    lines = [f"{at:07}\n".encode() for at in range(200_000)]
    text = _shown(*lines, budget=1000)
    head, _, rest = text.partition("\n[cut: ")
    count, _, tail = rest.partition(" bytes are left out here. ")
    tail = tail.partition("]\n")[2]
    assert len(head) + int(count) + len(tail) == 1_600_000
    assert head.startswith("0000000\n0000001\n")
    assert tail.endswith("0199999\n")
    for tool in ("head", "tail", "grep", "awk", "sed"):
        assert tool in text


def test_memory_does_not_grow_with_what_is_printed() -> None:
    output = Output(1000)
    block = b"y\n" * 50_000
    for _ in range(1000):
        output.feed(block)
    held = len(output._head) + len(output._tail) + len(output._line)
    assert held < 100_000
    output.feed(b"z" * 10_000_000)  # one line that never ends
    assert len(output._head) + len(output._tail) + len(output._line) < 200_000


@settings(deadline=None)
@given(st.text(st.sampled_from("\x1b[]0;m\x07\\Pa\x9b\x80\n\t"), max_size=300))
def test_stripping_leaves_no_control_characters(text: str) -> None:
    assert not set(strip_terminal(text)) & {"\x1b", "\x07", "\x9b", "\x80"}


def test_stripping_is_linear() -> None:
    """Unfinished sequences do not make the expression look ahead again and again; the test's own timeout would tell."""
    for hostile in ("\x1b]" * 300_000, "\x1b[" + "0" * 1_000_000, "\x1b[0" * 300_000):
        assert "\x1b" not in strip_terminal(hostile)
