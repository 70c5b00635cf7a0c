"""Where things lie in an archive, and in which words.

contexts/
├── running/{uuid}/   paused/{uuid}/   completed/{uuid}/
│   ├── metadata.json   messages.jsonl   current.jsonl   summaries.jsonl   tools.jsonl   planning.jsonl
│   ├── final_summary.txt
│   └── sostenuto/      what only we need, to let the job go on elsewhere
└── tasks.db
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from storage.models import TERMINAL_STATES

CONTEXTS = "contexts"
RUNNING, PAUSED, COMPLETED = "running", "paused", "completed"
FOLDERS = (COMPLETED, PAUSED, RUNNING)  # where a job is in two of them, the first one counts
TASKS = "tasks.db"

METADATA = "metadata.json"
MESSAGES = "messages.jsonl"
CURRENT = "current.jsonl"
SUMMARIES = "summaries.jsonl"
TOOLS = "tools.jsonl"
PLANNING = "planning.jsonl"
FINAL_SUMMARY = "final_summary.txt"

FORMAT = 1  # of what lies in OURS; a reader refuses a later one
OURS = "sostenuto"
JOB = f"{OURS}/job.json"
INPUTS = f"{OURS}/inputs.json"
MORE_OF_MESSAGES = f"{OURS}/messages.jsonl"
MORE_OF_SUMMARIES = f"{OURS}/summaries.jsonl"
MORE_OF_PLANS = f"{OURS}/plans.jsonl"
TOOL_CALLS = f"{OURS}/tool_calls.jsonl"
COMMENTS = f"{OURS}/comments.jsonl"
EVENTS = f"{OURS}/events.jsonl"
RUNS = f"{OURS}/runs.jsonl"
IMAGES = f"{OURS}/images.jsonl"
IMAGE_FOLDER = f"{OURS}/images"
WORKSPACE = f"{OURS}/workspace"
FILES = f"{OURS}/workspace.jsonl"

_SEPARATORS = re.compile("[\x85\u2028\u2029]")
_METADATA = ("task_type", "task_identifier", "repository", "user")


def folder_of(state: str) -> str:
    """The folder of a job in this state."""
    if state in TERMINAL_STATES:
        return COMPLETED
    return PAUSED if state == "paused" else RUNNING


def status_of(state: str) -> str:
    """The word of tasks.db for it."""
    if state in TERMINAL_STATES:
        return "completed" if state == "succeeded" else "failed"
    return folder_of(state)


def timestamp(seconds: float) -> str:
    """Epoch seconds as ISO 8601 in UTC, to the microsecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def seconds_of(text: object) -> float | None:
    """The epoch seconds of an ISO 8601 time, in UTC where it names no zone; None where it is none."""
    try:
        moment = datetime.fromisoformat(str(text))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def line(record: Mapping[str, Any]) -> bytes:
    """One record of a .jsonl file: one line to every reader, also to those that know more separators than the newline."""
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return _SEPARATORS.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode() + b"\n"


def document(data: Mapping[str, Any]) -> bytes:
    """A .json file."""
    return json.dumps(data, ensure_ascii=False, indent=2).encode() + b"\n"


def metadata_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """What metadata.json says of a job's row."""
    about = {name: row[name] for name in _METADATA}
    return {"uuid": row["id"], "created_at": timestamp(row["created_at"]), **about}


def task_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """A job's line of tasks.db, from its archived row."""
    failed = status_of(row["state"]) == "failed"
    why = row["error_message"] or row["reason"]
    if failed and row["state"] != "failed":
        why = f"{row['state']}: {why}" if why else row["state"]
    ended = row["completed_at"]
    metadata = row["metadata"]
    copied = (
        *_METADATA, "total_messages", "total_summaries", "total_tool_calls", "final_token_count",
        "final_message_count",
    )  # fmt: skip
    return {name: row[name] for name in copied} | {
        "uuid": row["id"],
        "status": status_of(row["state"]),
        "created_at": timestamp(row["created_at"]),
        "updated_at": timestamp(row["updated_at"]),
        "completed_at": None if ended is None else timestamp(ended),
        "metadata": None if metadata is None else json.dumps(metadata, ensure_ascii=False),
        "error_message": why if failed else None,
    }
