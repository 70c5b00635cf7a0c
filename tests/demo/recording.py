"""What of the demo's output is the same each time, and how the recording in docs/ is made.

.venv/bin/python -m tests.demo.recording    makes it anew, as `make demo` prints it into a pipe
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORDING = ROOT / "docs" / "demo-recording.txt"

_VARYING = [
    (r"\d\d:\d\d:\d\d", "hh:mm:ss"),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "JOB"),
    (r"(?<=job )[0-9a-f]{8}\b|(?<=show )[0-9a-f]{8}\b|(?<=transcript )[0-9a-f]{8}\b", "JOB"),
    (r"(?<=pid )\d+|(?<=kill -9 )\d+", "PID"),
    (r"\S*/bin/sostenuto(?= )|(?<= )sostenuto(?= (?:show|transcript|up))", "SOSTENUTO"),
    # Either worker may take the job whenever it is free.
    (r"(?<=hh:mm:ss  )[AB](?= )|(?<=[Ww]orker )[AB]\b", "X"),
    # The strongest sandbox that works there.
    (r"(?<=  sandbox  )\S+", "LEVEL"),
]


def constant(output: str) -> str:
    """The output with times, ids and what else may differ taken out, and the lines' ends that hung on their length."""
    for pattern, replacement in _VARYING:
        output = re.sub(pattern, replacement, output)
    return re.sub(r"[ \t]+$", "", output, flags=re.MULTILINE).strip() + "\n"


def record() -> str:
    """The output of what `make demo` runs, in a folder of its own that has the environment under its usual name."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, ".venv").symlink_to(sys.prefix)
        own = ("SOSTENUTO_", "OPENAI_")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        command = [".venv/bin/sostenuto", "demo"]
        return subprocess.run(
            command, cwd=folder, env=clean, capture_output=True, text=True, check=True
        ).stdout


if __name__ == "__main__":
    RECORDING.write_text("$ make demo\n" + record())
