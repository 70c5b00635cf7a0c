"""Agents on DBOS, coroutines of one loop, their replies and tool results durable steps: `… dbos_agents URL [--wal]`."""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version

from dbos import DBOS

from benchmarks.peers import agent
from benchmarks.peers.agent import BEGIN, Message
from benchmarks.peers.dbos_jobs import launch
from benchmarks.peers.serving import serve_from_loop


@DBOS.step()  # type: ignore[untyped-decorator]  # not installed where types are checked
async def ask(model: str, messages: list[Message]) -> Message:
    return await agent.ask(model, messages)


@DBOS.step()  # type: ignore[untyped-decorator]  # as above
async def act(reply: Message) -> Message:
    return agent.act(reply)


@DBOS.workflow(name="agent")  # type: ignore[untyped-decorator]  # as above
async def run_agent(model: str) -> str:
    messages = [BEGIN]
    while True:
        reply = await ask(model, messages)
        messages += [reply, await act(reply)]
        if agent.ends(reply):
            return "done"


async def main(url: str, *, wal: bool) -> None:
    pragmas = launch(url, wal=wal)  # in the loop, which also runs what comes by a queue

    async def agents_at_once(jobs: int, model: str) -> None:
        handles = [await DBOS.start_workflow_async(run_agent, model) for _ in range(jobs)]
        for handle in handles:
            assert await handle.get_result() == "done"

    settings = f"dbos {version('dbos')}, {pragmas}async workflows, its defaults"
    await serve_from_loop(settings, agents_at_once, "2-0-1")
    DBOS.destroy()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], wal="--wal" in sys.argv))
