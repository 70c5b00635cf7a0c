"""What nothing can be faster than here: a bare commit of each database, the broker's answer, a raw model call."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
from openai import OpenAI

from benchmarks.bench import Bench
from benchmarks.figures import Figure, Table
from benchmarks.model_server import ModelServer
from benchmarks.peers.celery_jobs import counter


def floors(bench: Bench) -> Table:
    """Each with what the system itself runs with."""
    count = bench.sizes.floor_samples
    return Table(
        "Floors",
        [
            sqlite_floor(bench, count),
            postgres_floor(bench, count),
            Figure("a Redis round trip (PING)", "ms", broker_answers(bench.new_broker(), count), settings="redis-py, Valkey, Unix socket"),
            Figure("a raw `openai` call", "ms", model_calls(bench, count), settings="20 chunks streamed at once, loopback"),
        ],
    )  # fmt: skip


def sqlite_floor(bench: Bench, count: int) -> Figure:
    times = sqlite_commits(bench.new_folder("floor") / "floor.db", count)
    return Figure(
        "a bare SQLite commit", "ms", times, settings="one row, WAL, synchronous=FULL, sqlite3 module"
    )


def postgres_floor(bench: Bench, count: int) -> Figure:
    times = postgres_commits(bench.new_database("postgres"), count)
    return Figure(
        "a bare Postgres commit", "ms", times, settings="one row, synchronous_commit=on, fsync=on, psycopg 3"
    )


def sqlite_commits(file: Path, count: int) -> list[float]:
    """Milliseconds of `count` one-row commits, WAL and synchronous=FULL as the system runs."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, text TEXT)")

        def commit() -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO rows (text) VALUES (?)", ("a row",))
            connection.execute("COMMIT")

        return timed(commit, count)


def postgres_commits(url: str, count: int) -> list[float]:
    """The same on Postgres: two round trips, since the insert begins the transaction."""
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE rows (id serial PRIMARY KEY, text text)")
        connection.commit()

        def commit() -> None:
            connection.execute("INSERT INTO rows (text) VALUES (%s)", ("a row",))
            connection.commit()

        return timed(commit, count)


def broker_answers(broker: str, count: int) -> list[float]:
    return timed(counter(broker).ping, count)


def model_calls(bench: Bench, count: int) -> list[float]:
    with (
        closing(ModelServer(bench)) as model,
        OpenAI(api_key="none", base_url=model.url, max_retries=0) as client,
    ):
        messages: Any = [{"role": "user", "content": "Say something."}]

        def call() -> None:
            with client.chat.completions.create(model="1-0-20", messages=messages, stream=True) as stream:
                for _ in stream:
                    pass

        return timed(call, count)


def timed(act: Callable[[], object], count: int) -> list[float]:
    """Milliseconds of each of `count` calls, after one that is not counted."""
    act()
    times = []
    for _ in range(count):
        began = time.perf_counter()
        act()
        times.append((time.perf_counter() - began) * 1000)
    return times
