"""The same jobs on bare Celery, with nothing of this project: tasks, and a counter in the broker of what is done.

`whole`: one task a job, its steps a loop. `steps`: one task a step, each sending the next. `rows`: the same, each step's
row committed to SQLite at synchronous=FULL first, acknowledged late.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from functools import cache
from typing import Any
from urllib.parse import unquote

import redis
from celery import Celery

BROKER = os.environ.get("BENCH_BROKER", "")
FILE = os.environ.get("BENCH_FILE", "")
DONE = "bench-done"
OPTIONS = {"socket_timeout": 30}

app = Celery("bench", broker=BROKER or None)
app.conf.update(
    task_ignore_result=True, broker_connection_retry_on_startup=True, broker_transport_options=OPTIONS
)
if FILE:
    app.conf.update(task_acks_late=True, worker_prefetch_multiplier=1)
_connections = threading.local()


@cache
def counter(broker: str) -> redis.Redis:
    return redis.Redis(unix_socket_path=unquote(broker.removeprefix("redis+socket://")))


@cache
def _sender(broker: str) -> Celery:
    return Celery("bench", broker=broker, set_as_current=False)


def begin(broker: str, kind: str, job: str, steps: int) -> None:
    """Sends the first task of a job."""
    args = [job, steps] if kind == "whole" else [job, 1, steps]
    _sender(broker).send_task(
        f"bench.{'whole' if kind == 'whole' else 'step'}", args=args, ignore_result=True
    )


def done(client: redis.Redis) -> int:
    """How many jobs have ended since the counter was deleted."""
    return int(client.get(DONE) or 0)


@app.task(name="bench.whole")  # type: ignore[untyped-decorator]  # celery ships no types
def whole(job: str, steps: int) -> None:
    for number in range(steps):
        f"done {number} of {job}".encode()
    counter(BROKER).incr(DONE)


@app.task(name="bench.step")  # type: ignore[untyped-decorator]  # celery ships no types
def step(job: str, number: int, steps: int) -> None:
    if FILE:
        _keep(job, number)
    if number < steps:
        step.delay(job, number + 1, steps)
    else:
        counter(BROKER).incr(DONE)


def _keep(job: str, number: int) -> None:
    connection = getattr(_connections, "it", None)
    if connection is None:
        connection = _connections.it = sqlite3.connect(FILE, timeout=15, isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS steps (job TEXT, number INTEGER, result TEXT, PRIMARY KEY (job, number))"
        )
    connection.execute("INSERT OR IGNORE INTO steps VALUES (?, ?, ?)", (job, number, f"done {number}"))


def ask(broker: str, model: str) -> None:
    """Sends a task that calls the model that the worker's environment names."""
    _sender(broker).send_task("bench.ask", args=[model], ignore_result=True)


@cache
def _client() -> Any:
    from openai import OpenAI

    return OpenAI(max_retries=0)


@app.task(name="bench.ask")  # type: ignore[untyped-decorator]  # celery ships no types
def ask_the_model(model: str) -> None:
    messages = [{"role": "user", "content": "Say something."}]
    with _client().chat.completions.create(model=model, messages=messages, stream=True) as stream:
        for _ in stream:
            pass
