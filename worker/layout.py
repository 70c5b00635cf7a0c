"""From transcript rows to the messages of a request: one pure function.

    0     system, frozen per movement
    1     user HEAD: its blocks in order, the instruction last; a compaction's summary stands after what was inherited,
          and after it a person's words that the first kept reply answers
    2…    turns: assistant → all results in call order → at most one user gap message

What a strict server refuses cannot come out of here: user texts in a row are merged, results stand in call order
right after their calls, and arguments always parse to an object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from types import MappingProxyType
from typing import Any

from storage.records import Message
from worker.cutting import TURNS, is_trimmed, trimmed
from worker.model.rules import REASONING, SIGNATURE
from worker.reminders import neutral, on_the_wire, reminder_kind

WireMessage = dict[str, Any]
INHERITED = "inheritance"  # the head block that a summary stands after
INSTRUCTION = "instruction"
IMAGES = "images"  # of a row's extra: what was shown with a gap message, or is to be shown after a result
KEPT_IMAGES = 1  # of those that a compaction found
SUMMARY = (
    "## Your work so far\nThis summary stands for the conversation up to message {last} and for {replies} replies of "
    "yours, which are no longer shown. What it "
    "calls done is done: do not do it again. `recall` looks up the messages themselves."
)
SUMMARY_JAPANESE = (
    "## これまでの作業\nこの要約は、表示されなくなったメッセージ {last} までの会話と、あなたの返答 {replies} 件に代わるものです。完了とあるものは完了して"
    "います。繰り返さないでください。元のメッセージは `recall` で確認できます。"
)
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")


def build_messages(
    rows: Sequence[Message], images: Mapping[str, str] = MappingProxyType({}), trim_seq: int = 0
) -> list[WireMessage]:
    """The messages of the next request, from the rows of the present view in the order of their seq.

    `images` are those of `shown_images`, as URLs by their hash; one that is not there is told in words. Long results
    before `trim_seq` are shown shortened. Each call in the view must have its result, or ValueError: an unanswered call
    is the agent loop's to answer first.
    """
    system = next(row for row in rows if row.kind == "system")
    turns = [row for row in rows if row.kind in TURNS]
    summaries = [row for row in rows if row.kind == "summary"]
    # After a compaction the turns begin with a reply; what a person said just before it joins the head. What the agent
    # was reminded of then is over: reminders stand at the tail or nowhere.
    early = [*takewhile(lambda row: row.role == "user", turns)] if summaries else []
    said = [row for row in early if reminder_kind(row) is None]
    head = _head([row for row in rows if row.kind == "head"], [*summaries[-1:], *said])
    built: list[WireMessage] = [{"role": "system", "content": system.content}, head]
    _append(built, turns[len(early) :], images, trim_seq)
    return built


def _append(
    built: list[WireMessage], turns: Sequence[Message], images: Mapping[str, str], trim_seq: int
) -> None:
    """Puts these turns after what is built: whole ones, each reply with the results of its calls."""
    results = {row.tool_call_id: row for row in turns if row.role == "tool"}
    for row in turns:
        if row.role == "assistant":
            built.extend(_turn(row, results, trim_seq))
        elif row.role == "user":
            _append_user(built, _user_content(row, images))


class Conversation:
    """The requests of one view, built on from step to step: what was built of its earlier rows is built once.

    `messages` gives what `build_messages` gives, and whatever it gave before stays as it was.
    """

    def __init__(self) -> None:
        self._built: list[WireMessage] = []
        self._seen = 0  # rows that are in it
        self._of: tuple[int, int, int] | None = (
            None  # first and last of them by their seq, and what was trimmed
        )

    def messages(
        self, rows: Sequence[Message], images: Mapping[str, str], trim_seq: int
    ) -> list[WireMessage]:
        """See `build_messages`: at the cost of the rows that came since the last call, where only such came."""
        new = rows[self._seen :]
        goes_on = self._goes_on(rows, trim_seq) and not images and all(row.kind in TURNS for row in new)
        self._of = None  # as long as it is in the making
        if goes_on:
            _append(self._built, new, images, trim_seq)
        else:
            self._built = build_messages(rows, images, trim_seq)
        self._seen = len(rows)
        if not images:  # they are shown in messages further up, and may be gone the next time
            self._of = (rows[0].seq, rows[-1].seq, trim_seq)
        return list(self._built)

    def _goes_on(self, rows: Sequence[Message], trim_seq: int) -> bool:
        if self._of is None or len(rows) < self._seen:
            return False
        return self._of == (rows[0].seq, rows[self._seen - 1].seq, trim_seq)


def shown_images(rows: Sequence[Message]) -> list[dict[str, Any]]:
    """What the rows note of the images that a request shows: of those that a compaction found the newest, and all since.

    The same until the next compaction: an image that goes earlier would change what was sent before.
    """
    gaps = [row for row in rows if row.kind == "gap" and row.extra and IMAGES in row.extra]
    if not gaps:
        return []
    summary = max((row.seq for row in rows if row.kind == "summary"), default=0)
    older = [image for row in gaps if row.seq < summary for image in (row.extra or {})[IMAGES]]
    newer = [image for row in gaps if row.seq > summary for image in (row.extra or {})[IMAGES]]
    return older[-KEPT_IMAGES:] + newer


def _user_content(row: Message, images: Mapping[str, str]) -> str | list[dict[str, Any]]:
    """A gap message: its text, and the images it shows as further parts."""
    text = on_the_wire(row)
    noted = (row.extra or {}).get(IMAGES)
    if not noted:
        return text
    shown = [images[image["sha"]] for image in noted if image["sha"] in images]
    gone = [image["path"] for image in noted if image["sha"] not in images]
    if gone:
        text += f"\n[no longer shown: {', '.join(gone)}; ReadImage shows an image again]"
    urls = [{"type": "image_url", "image_url": {"url": url}} for url in shown]
    return [{"type": "text", "text": text}, *urls] if urls else text


def _head(blocks: Sequence[Message], earlier: Sequence[Message]) -> WireMessage:
    inherited = [row for row in blocks if (row.extra or {}).get("block") == INHERITED]
    rest = [row for row in blocks if row not in inherited]
    texts = [_head_text(row) for row in (*inherited, *earlier, *rest) if row.content]
    return {"role": "user", "content": "\n\n".join(texts)}


def _head_text(row: Message) -> str:
    """The instruction goes out byte for byte; what was gathered around it speaks in nobody's name but its own."""
    if row.kind == "summary":
        return summary_text(row)
    is_instruction = (row.extra or {}).get("block") == INSTRUCTION
    return row.content or "" if is_instruction else on_the_wire(row)


def summary_text(row: Message) -> str:
    """A compaction's summary as the agent reads it."""
    extra = row.extra or {}
    japanese = extra.get("language") == "ja"
    heading = summary_heading(extra.get("last_seq", row.seq - 1), extra.get("replies", 0), japanese=japanese)
    return f"{heading}\n\n{on_the_wire(row)}"


def summary_heading(last_seq: int, replies: int, *, japanese: bool) -> str:
    """What a summary stands for, and what that means. The scripted model counts its steps by it."""
    return (SUMMARY_JAPANESE if japanese else SUMMARY).format(last=last_seq, replies=replies)


def _turn(row: Message, results: dict[str | None, Message], trim_seq: int) -> Iterator[WireMessage]:
    message: WireMessage = {"role": "assistant", "content": row.content}
    extra = row.extra or {}
    asked = extra.get("asked") or extra.get("model")
    if row.tool_calls:
        message["tool_calls"] = [_call(call, asked) for call in row.tool_calls]
    if extra.get("reasoning"):
        message[REASONING] = {"by": asked, "fields": extra["reasoning"]}
    yield message
    for call in row.tool_calls or ():
        if (result := results.get(call["id"])) is None:
            raise ValueError(f"call {call['id']} of message {row.seq} has no result")
        text = neutral(trimmed(result)) if is_trimmed(result, trim_seq) else on_the_wire(result)
        yield {"role": "tool", "tool_call_id": call["id"], "content": text}


def _call(call: dict[str, Any], asked: str | None) -> WireMessage:
    # Broken arguments stay in the transcript as the model wrote them; servers and chat templates parse what is sent.
    # So does a name that is none: servers refuse it in every later request, and the job could never go on.
    arguments = "{}" if call.get("broken") else call["arguments"]
    name = _NO_NAME.sub("_", call["name"])[:64] or "unnamed"
    built = {"id": call["id"], "type": "function", "function": {"name": name, "arguments": arguments}}
    return built | {SIGNATURE: {"by": asked, "value": call["extra"]}} if call.get("extra") else built


def _append_user(built: list[WireMessage], content: str | list[dict[str, Any]]) -> None:
    if built[-1]["role"] != "user":
        built.append({"role": "user", "content": content})
        return
    before = built[-1]["content"]
    if isinstance(before, str) and isinstance(content, str):
        merged: str | list[dict[str, Any]] = f"{before}\n\n{content}"
    else:
        merged = [*_parts(before), *_parts(content)]
    built[-1] = {"role": "user", "content": merged}  # a new one: an earlier request may hold the old one


def _parts(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def request_text(messages: Sequence[WireMessage], tools: Sequence[WireMessage]) -> str:
    """All text of a request, for an estimate of its tokens. Images are none of it: their rows know what they cost."""
    parts = [part.get("text", "") for message in messages for part in _parts(message.get("content") or "")]
    parts += [
        json.dumps(message["tool_calls"], ensure_ascii=False)
        for message in messages
        if "tool_calls" in message
    ]
    parts += [json.dumps(tools, ensure_ascii=False)] if tools else []
    return "\n".join(parts)
