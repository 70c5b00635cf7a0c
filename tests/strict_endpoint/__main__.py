"""`python -m tests.strict_endpoint --script FILE [--port N] [--window W] [--chunk-delay S]`: prints its URL, serves.

`GET /v1/_violations` and `/v1/_calls` answer what the object's attributes would.
"""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path

from tests.strict_endpoint import StrictEndpoint, script_mind
from worker.model.script import Script


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.strict_endpoint")
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--window", type=int)
    parser.add_argument("--chunk-delay", type=float, default=0.0)
    given = parser.parse_args()
    mind = script_mind(Script.load(given.script))
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    with StrictEndpoint(
        mind, window=given.window, chunk_delay=given.chunk_delay, port=given.port
    ) as endpoint:
        print(endpoint.url, flush=True)
        over.wait()


if __name__ == "__main__":
    main()
