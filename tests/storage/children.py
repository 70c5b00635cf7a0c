"""Real processes for what threads of one process cannot show: each runs a few lines over a database."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

_START = """
import json, sys
from storage.engine import Database
args = json.loads(sys.argv[1])
db = Database(args["url"])
print("ready", flush=True)
sys.stdin.readline()
"""


def run_children(body: str, arguments: Iterable[dict[str, Any]]) -> list[Any]:
    """Runs `body` in one process for each of the arguments, all let go at once; returns what each printed as JSON.

    `body` finds `args` and an open `db`. A process that fails fails the test with its traceback.
    """
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _START + body, json.dumps(given)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for given in arguments
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", process.communicate(timeout=60)[1]
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        results = []
        for process in processes:
            out, err = process.communicate(timeout=120)
            assert process.returncode == 0, err
            results.append(json.loads(out))
        return results
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait(timeout=30)
