"""Whatever a transcript holds, the request built from it passes the strict endpoint's rules, and only grows."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.records import Message
from tests.strict_endpoint.rules import Profile, check, check_prefix, parse
from worker.agent import _stored_call
from worker.layout import build_messages, request_text, shown_images, summary_heading
from worker.model.rules import Rules, to_wire
from worker.model.types import ModelRequest, ToolCall
from worker.model.wire import encode_request

TOOLS = [
    {"type": "function", "function": {"name": "Read", "parameters": {"type": "object", "properties": {}}}}
]
TEXT = st.text(min_size=1, max_size=30)
ARGUMENTS = st.one_of(
    st.sampled_from(
        ["{}", '{"a": 1}', '{"cmd":"ls', "[]", "null", '"ls"', "", "NaN", '{"a": NaN}', '{"a":1}}']
    ),
    st.sampled_from(['{"a": "\\u0000 \\ud83d"}', "{" * 2000, '{"a": ' + "9" * 5000 + "}", "junk " * 1000]),
    st.text(max_size=20),
)
NAMES = st.one_of(
    st.sampled_from(["Read", "Read ", "", "mcp__x__y", "a.b c/d", "日本語", "n" * 200]), st.text(max_size=80)
)
CALLS = st.lists(st.tuples(NAMES, ARGUMENTS), min_size=1, max_size=5)


@dataclass
class Transcript:
    """Rows as the agent loop commits them, turn by turn."""

    rows: list[Message] = field(default_factory=list)
    numbers: Any = field(default_factory=lambda: itertools.count(1))

    def add(self, role: str, kind: str, content: str | None, **more: Any) -> Message:
        row = Message(len(self.rows) + 1, 1, role, kind, content, "run", 0.0, **more)
        self.rows.append(row)
        return row

    def turn(
        self,
        content: str | None,
        calls: list[tuple[str, str]],
        shuffled: Any,
        gaps: list[str],
        *,
        shows: bool = False,
    ) -> None:
        ids = [f"call_{next(self.numbers)}" for _ in calls]
        stored = [
            _stored_call(ToolCall(call_id, name, text, raw_id="e:1"))
            for call_id, (name, text) in zip(ids, calls, strict=True)
        ]
        self.add("assistant", "assistant", content, tool_calls=stored or None)
        for call_id in shuffled(ids):
            self.add("tool", "tool", f"result of {call_id}", tool_call_id=call_id, tool_name="x")
        for at, gap in enumerate(gaps or ([] if calls else ["go on"])):
            # A batch's images stand first.
            self.add(
                "user", "gap", gap, extra={"images": [image(gap)]} if calls and at == 0 and shows else None
            )


def image(name: str) -> dict[str, Any]:
    """What a row notes of an image."""
    return {"sha": f"sha of {name}", "path": name, "width": 30, "height": 20, "tokens": 85}


@st.composite
def transcripts(draw: st.DrawFn) -> list[list[Message]]:
    """A valid transcript at each moment at which the model could be asked, in order."""
    script = Transcript()
    script.add("system", "system", draw(TEXT))
    if draw(st.booleans()):
        script.add("user", "head", draw(TEXT), extra={"block": "inheritance"})
    for name in draw(st.lists(st.sampled_from(["lessons", "time", "comments", "files"]), max_size=4)):
        script.add("user", "head", draw(TEXT), extra={"block": name})
    script.add("user", "head", draw(TEXT), extra={"block": "instruction"})
    moments = [list(script.rows)]
    for _ in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):  # a call that failed, and a comment that came meanwhile
            script.add("user", "gap", draw(TEXT))
            moments.append(list(script.rows))
        calls = draw(st.one_of(st.just([]), CALLS))
        content = draw(TEXT if not calls else st.one_of(st.none(), TEXT))
        order = draw(st.randoms(use_true_random=False))
        script.turn(
            content,
            calls,
            lambda ids, order=order: order.sample(ids, len(ids)),
            draw(st.lists(TEXT, max_size=3)),
            shows=draw(st.booleans()),
        )
        moments.append(list(script.rows))
    return moments


def urls_of(rows: list[Message]) -> dict[str, str]:
    return {noted["sha"]: f"data:image/png;base64,{noted['path']}" for noted in shown_images(rows)}


def sent(rows: list[Message]) -> dict[str, Any]:
    """The request's body as an endpoint reads it off the wire."""
    messages = to_wire(build_messages(rows, urls_of(rows)), Rules(), "model")
    return parse(encode_request(ModelRequest("model", messages, TOOLS, None, "job/1/1")))


@given(transcripts())
def test_every_request_passes_the_strict_rules(moments: list[list[Message]]) -> None:
    """Pairing, ids, empty messages, arguments, two user messages in a row, bytes no server takes."""
    for rows in moments:
        body = sent(rows)
        check(body, Profile())
        for message in body["messages"]:
            for made in message.get("tool_calls", ()):
                assert made["function"]["name"].isascii()
                assert 1 <= len(made["function"]["name"]) <= 64


@given(transcripts())
def test_a_request_only_grows_at_its_end(moments: list[list[Message]]) -> None:
    """A head that is rewritten costs the provider's prompt cache, and the model its bearings."""
    requests = [sent(rows)["messages"] for rows in moments]
    for before, after in itertools.pairwise(requests):
        check_prefix(before, after, Profile())


@given(transcripts())
def test_results_stand_in_call_order_right_after_their_calls(moments: list[list[Message]]) -> None:
    """Results are committed as they come; a server wants them in order, and nothing between them."""
    messages = build_messages(moments[-1])
    for index, message in enumerate(messages):
        ids = [made["id"] for made in message.get("tool_calls", ())]
        answers = messages[index + 1 : index + 1 + len(ids)]
        assert [answer["tool_call_id"] for answer in answers] == ids
        assert [answer["content"] for answer in answers] == [f"result of {call_id}" for call_id in ids]


def test_an_unanswered_call_is_refused() -> None:
    """A call without its result must never reach a server: the loop answers it first."""
    script = Transcript()
    script.add("system", "system", "s")
    script.add("user", "head", "h")
    script.add("assistant", "assistant", None, tool_calls=[{"id": "c1", "name": "Read", "arguments": "{}"}])
    with pytest.raises(ValueError, match="call c1 of message 3 has no result"):
        build_messages(script.rows)


def test_a_name_that_servers_refuse_stays_in_the_transcript_alone() -> None:
    """A made-up name with a blank or a dot in the history makes every later request a 400."""
    script = Transcript()
    script.add("system", "system", "s")
    script.add("user", "head", "h")
    script.turn(None, [("fs.read file", "{}"), ("", "{}")], list, [])
    wire = build_messages(script.rows)[2]["tool_calls"]
    assert [made["function"]["name"] for made in wire] == ["fs_read_file", "unnamed"]
    assert script.rows[2].tool_calls is not None
    assert [made["name"] for made in script.rows[2].tool_calls] == ["fs.read file", ""]


def test_the_head_has_its_blocks_in_order_and_a_summary_after_what_was_inherited() -> None:
    script = Transcript()
    script.add("system", "system", "s")
    for name in ("inheritance", "lessons", "time", "instruction"):
        script.add("user", "head", name, extra={"block": name})
    script.add("user", "summary", "an older summary")
    script.add("user", "summary", "summary")
    heading = summary_heading(6, japanese=False)
    blocks = ["inheritance", heading, "summary", "lessons", "time", "instruction"]
    assert build_messages(script.rows)[1]["content"] == "\n\n".join(blocks)


def test_text_for_an_estimate_holds_all_that_is_sent() -> None:
    """Schemas and calls cost tokens too."""
    script = Transcript()
    script.add("system", "system", "sys-text")
    script.add("user", "head", "head-text")
    script.turn("said", [("Read", '{"path": "p"}')], list, ["gap-text"])
    text = request_text(build_messages(script.rows), TOOLS)
    for part in ("sys-text", "head-text", "said", '\\"path\\"', "result of call_1", "gap-text", '"Read"'):
        assert part in text


def _pictures(rows: list[Message]) -> list[str]:
    return [
        part["image_url"]["url"].partition(",")[2]
        for message in build_messages(rows, urls_of(rows))
        if isinstance(message["content"], list)
        for part in message["content"]
        if part["type"] == "image_url"
    ]


def test_a_compaction_keeps_the_newest_image_and_those_after_it() -> None:
    """The others are told by name: earlier messages change only then, since that breaks the prefix anyway."""
    script = Transcript()
    script.add("system", "system", "You are.")
    script.add("user", "head", "Do it.", extra={"block": "instruction"})
    for name in ("a.png", "b.png", "c.png"):
        script.turn(None, [("Read", "{}")], list, [name], shows=True)
    assert _pictures(script.rows) == ["a.png", "b.png", "c.png"]
    script.add("user", "summary", "What was done.", extra={"to_seq": 2})
    assert _pictures(script.rows) == ["c.png"]
    told = [message["content"] for message in build_messages(script.rows, urls_of(script.rows))]
    assert "a.png\n[no longer shown: a.png; ReadImage shows an image again]" in told
    script.turn(None, [("Read", "{}")], list, ["d.png"], shows=True)
    assert _pictures(script.rows) == ["c.png", "d.png"]
