"""Agents on nothing: coroutines of one loop that keep nothing. What the model's client and server admit at most."""

from __future__ import annotations

import asyncio
from importlib.metadata import version

from benchmarks.peers.agent import BEGIN, act, ask, ends
from benchmarks.peers.serving import serve_from_loop


async def agent(model: str) -> None:
    messages = [BEGIN]
    while True:
        reply = await ask(model, messages)
        if ends(reply):
            return
        messages += [reply, act(reply)]


async def agents_at_once(jobs: int, model: str) -> None:
    await asyncio.gather(*(agent(model) for _ in range(jobs)))


if __name__ == "__main__":
    settings = f"openai {version('openai')}, AsyncOpenAI, coroutines"
    asyncio.run(serve_from_loop(settings, agents_at_once, "2-0-1"))
