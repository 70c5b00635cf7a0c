"""What an agent's steps do on every peer: a streamed model call, and a tool that does next to nothing. `openai` only.

The client is set up as this project's own (worker/model/openai_client.py): what keeps the steps is what is compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from typing import Any

import httpx2
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

Message = dict[str, Any]
BEGIN: Message = {"role": "user", "content": "Do some steps of nothing."}
LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=1000, keepalive_expiry=60)
POOLS = 16


@cache
def _clients() -> Iterator[AsyncOpenAI]:
    """In turn: a pool looks at all its connections for each request. The process's, so it may have one loop only."""
    return itertools.cycle(
        [AsyncOpenAI(max_retries=0, http_client=DefaultAsyncHttpxClient(limits=LIMITS)) for _ in range(POOLS)]
    )


async def ask(model: str, messages: list[Message]) -> Message:
    """The model's reply, which calls a tool."""
    text, calls = "", list[Message]()
    given: Any = messages
    completions = next(_clients()).chat.completions
    async with await completions.create(model=model, messages=given, stream=True) as stream:
        async for chunk in stream:
            delta = chunk.choices[0].delta
            text += delta.content or ""
            if delta.tool_calls:  # whole: benchmarks/model_server.py sends them so
                calls = [call.model_dump(exclude={"index"}) for call in delta.tool_calls]
    return {"role": "assistant", "content": text, "tool_calls": calls}


def act(reply: Message) -> Message:
    """The result of the reply's call."""
    (call,) = reply["tool_calls"]
    return {"role": "tool", "tool_call_id": call["id"], "content": f"{call['function']['name']}: nothing"}


def ends(reply: Message) -> bool:
    """Whether it ends the job."""
    return any(call["function"]["name"] == "transition" for call in reply["tool_calls"])
