"""A hook that keeps a log of jobs: one line of JSON for each that was paused, asks a question or has ended.

The same event may be told twice, after a crash: its `event_id` is then the same.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_line(event: dict[str, Any]) -> None:
    """Appends to the file that JOB_LOG names."""
    job = event["job"]
    line = {"event_id": event["event_id"], "event": event["event"]}
    line |= {name: job[name] for name in ("id", "state", "reason_text", "result", "cost")}
    with Path(os.environ.get("JOB_LOG", "job-log.jsonl")).open("a", encoding="utf-8") as log:
        log.write(json.dumps(line, ensure_ascii=False) + "\n")
