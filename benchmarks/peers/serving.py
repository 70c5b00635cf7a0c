"""How a peer's process is told to work: lines of JSON in, lines of JSON out, until its input ends. Standard library only."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from typing import TypeVar

Work = TypeVar("Work", int, str)


def serve(settings: str, run: Callable[[int, Work], None], warm: Work) -> None:
    """Says that it is ready and with what settings; then runs as many jobs of the work that each line orders.

    The work of a job is a number of steps that do nothing, or the name of the model that it talks to
    (benchmarks/model_server.py). One of `warm` runs first: what is loaded once is not measured.
    """
    out = sys.stdout
    sys.stdout = sys.stderr  # what a library prints is no answer
    run(1, warm)
    print(json.dumps({"ready": True, "settings": settings}), file=out, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if order["jobs"]:
            run(order["jobs"], order["work"])
        print(json.dumps({"done": order["jobs"]}), file=out, flush=True)


async def serve_from_loop(
    settings: str, run: Callable[[int, Work], Coroutine[None, None, None]], warm: Work
) -> None:
    """The same where the jobs are coroutines of the running loop."""
    loop = asyncio.get_running_loop()

    def run_there(jobs: int, work: Work) -> None:
        asyncio.run_coroutine_threadsafe(run(jobs, work), loop).result()

    await asyncio.to_thread(serve, settings, run_there, warm)
