"""How a peer's process is told to work: lines of JSON in, lines of JSON out, until its input ends. Standard library only."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable


def serve(settings: str, run: Callable[[int, int], None]) -> None:
    """Says that it is ready and with what settings; then runs as many jobs of as many steps as each line orders."""
    out = sys.stdout
    sys.stdout = sys.stderr  # what a library prints is no answer
    run(1, 2)  # what is loaded once is not measured
    print(json.dumps({"ready": True, "settings": settings}), file=out, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if order["jobs"]:
            run(order["jobs"], order["steps"])
        print(json.dumps({"done": order["jobs"]}), file=out, flush=True)
