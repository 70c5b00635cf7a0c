"""Whatever a transcript holds, the request built from it passes the strict endpoint's rules, and only grows."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest

from storage.records import Message
from worker.agent import _stored_call
from worker.layout import build_messages, request_text, shown_images, summary_heading
from worker.model.types import ToolCall

TOOLS = [
    {"type": "function", "function": {"name": "Read", "parameters": {"type": "object", "properties": {}}}}
]


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


def urls_of(rows: list[Message]) -> dict[str, str]:
    return {noted["sha"]: f"data:image/png;base64,{noted['path']}" for noted in shown_images(rows)}


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
    heading = summary_heading(6, 0, japanese=False)
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
