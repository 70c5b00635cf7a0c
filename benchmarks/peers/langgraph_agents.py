"""Agents on LangGraph, coroutines of one loop, their replies and tool results checkpointed: `… langgraph_agents URL`."""

from __future__ import annotations

import asyncio
import operator
import sys
import uuid
from importlib.metadata import version
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph

from benchmarks.peers import agent
from benchmarks.peers.agent import BEGIN, Message
from benchmarks.peers.serving import serve_from_loop


class State(TypedDict):
    """A job's."""

    model: str
    messages: Annotated[list[Message], operator.add]


async def ask(state: State) -> dict[str, Any]:
    return {"messages": [await agent.ask(state["model"], state["messages"])]}


async def act(state: State) -> dict[str, Any]:
    return {"messages": [agent.act(state["messages"][-1])]}


def following(state: State) -> str:
    """What follows a tool's result, the last message."""
    return END if agent.ends(state["messages"][-2]) else "ask"


async def pragma(saver: Any, name: str) -> Any:
    async with saver.conn.execute(f"PRAGMA {name}") as cursor:
        return (await cursor.fetchone())[0]


async def main(url: str) -> None:
    builder = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_node("act", act)
    builder.add_edge(START, "ask")
    builder.add_edge("ask", "act")
    builder.add_conditional_edges("act", following, ["ask", END])
    async with AsyncSqliteSaver.from_conn_string(url.removeprefix("sqlite:///")) as saver:
        await saver.setup()
        pragmas = [f"{name}={await pragma(saver, name)}" for name in ("journal_mode", "synchronous")]
        graph = builder.compile(checkpointer=saver)

        async def job(model: str) -> None:
            config: Any = {"configurable": {"thread_id": uuid.uuid4().hex}, "recursion_limit": 1000}
            done = await graph.ainvoke({"model": model, "messages": [BEGIN]}, config, durability="sync")
            assert agent.ends(done["messages"][-2])

        async def agents_at_once(jobs: int, model: str) -> None:
            await asyncio.gather(*(job(model) for _ in range(jobs)))

        settings = (
            f"langgraph {version('langgraph')}, AsyncSqliteSaver {version('langgraph-checkpoint-sqlite')}, "
            f"{', '.join(pragmas)} (2 is FULL), ainvoke, durability=sync"
        )
        await serve_from_loop(settings, agents_at_once, "2-0-1")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
