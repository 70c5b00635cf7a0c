"""Valid response streams, damaged at random: cut, doubled, moved, overwritten, with bytes that are no text."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.model.calling import DONE, call_delta, delta, event

PLAIN = (
    delta(role="assistant", content="Let me "),
    delta(content="see 世界"),
    delta(finish="stop"),
    event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 6}}),
    DONE,
)
CALLS = (
    b": ping\n\n",
    delta(role="assistant", content=None, reasoning_content="hm"),
    call_delta({"index": 0, "id": "a", "type": "function", "function": {"name": "Act", "arguments": ""}}),
    call_delta({"index": 0, "function": {"arguments": '{"n"'}}),
    call_delta({"index": 0, "function": {"arguments": ": 7}"}}),
    call_delta({"index": 1, "id": "b", "function": {"name": "Again", "arguments": '{"n": 8}'}}),
    delta(finish="tool_calls"),
    event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 6}}),
    DONE,
)
BAD_BYTES = (
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\0",
    b"\r",
    b"\n\n",
    b'"',
    b"}",
    b"\\u",
    b"data:",
    b"\xef\xbb\xbf",
)


def mutations(count: int, seed: int) -> Iterator[tuple[bytes, ...]]:
    """So many damaged streams, in pieces as they go over the wire; the same ones for the same seed."""
    chance = random.Random(seed)
    for _ in range(count):
        events = list(chance.choice((PLAIN, CALLS)))
        if chance.random() < 0.3:
            chance.shuffle(events)
        if chance.random() < 0.3:
            events.insert(chance.randrange(len(events)), chance.choice(events))
        body = b"".join(events)
        for _ in range(chance.randint(0, 4)):
            body = _damaged(body, chance)
        size = chance.choice((1, 7, 64, 100_000))
        yield tuple(body[at : at + size] for at in range(0, len(body), size))


def _damaged(body: bytes, chance: random.Random) -> bytes:
    if not body:
        return b"\xff"
    start = chance.randrange(len(body))
    end = min(len(body), start + chance.randint(1, 60))
    kind = chance.randrange(6)
    if kind == 0:
        return body[:start]
    if kind == 1:
        return body[:start] + body[end:]
    if kind == 2:
        return body[:end] + body[start:]
    if kind == 3:
        place = chance.randrange(len(body))
        return body[:place] + body[start:end] + body[place:]
    if kind == 4:
        return body[:start] + bytes(chance.randrange(256) for _ in range(end - start)) + body[end:]
    return body[:start] + chance.choice(BAD_BYTES) + body[start:]
