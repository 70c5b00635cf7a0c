"""Jobs of checkpointed no-op nodes on LangGraph: `python -m benchmarks.peers.langgraph_jobs URL`."""

from __future__ import annotations

import operator
import sqlite3
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.metadata import version
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from benchmarks.peers.serving import serve


class State(TypedDict):
    """What grows with each step, as an agent's messages do."""

    messages: Annotated[list[str], operator.add]
    left: int


def work(state: State) -> dict[str, Any]:
    return {"messages": [f"done {state['left']}"], "left": state["left"] - 1}


@contextmanager
def saver(url: str) -> Iterator[tuple[Any, str]]:
    """The checkpointer as its documentation makes it, and what it runs with."""
    if not url.startswith("sqlite"):
        with PostgresSaver.from_conn_string(url) as postgres:
            postgres.setup()
            package = "langgraph-checkpoint-postgres"
            yield postgres, f"PostgresSaver {version(package)}"
        return
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), check_same_thread=False)) as connection:
        sqlite = SqliteSaver(connection)
        sqlite.setup()
        journal = connection.execute("PRAGMA journal_mode").fetchone()[0]
        synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
        package = "langgraph-checkpoint-sqlite"
        yield (
            sqlite,
            f"SqliteSaver {version(package)}, journal_mode={journal}, synchronous={synchronous} (2 is FULL)",
        )


def main(url: str) -> None:
    builder = StateGraph(State)
    builder.add_node("work", work)
    builder.add_edge(START, "work")
    builder.add_conditional_edges("work", lambda state: "work" if state["left"] else END)
    with saver(url) as (checkpointer, settings):
        graph = builder.compile(checkpointer=checkpointer)

        def run(jobs: int, steps: int) -> None:
            for _ in range(jobs):
                config: Any = {"configurable": {"thread_id": uuid.uuid4().hex}, "recursion_limit": steps + 5}
                done = graph.invoke({"messages": [], "left": steps}, config, durability="sync")
                assert len(done["messages"]) == steps

        serve(f"langgraph {version('langgraph')}, {settings}, durability=sync", run, 2)


if __name__ == "__main__":
    main(sys.argv[1])
