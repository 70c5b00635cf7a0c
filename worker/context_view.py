"""`python -m worker.context_view JOB`: what the model of a job would see now, as JSON. Reads only.

It is made by the code that makes the requests themselves, from the same rows. Without a job it reads the rows from its
standard input, a job's a line, and answers each line with the messages of the request: for archives.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jobs.errors import SostenutoError
from jobs.installation import open_installation
from jobs.settings_sources import load_settings
from storage.engine import Database
from storage.jobs import get_job
from storage.records import Message
from storage.transcript import load_view
from worker.accounting import marks_of, size_of
from worker.agent import unanswered
from worker.layout import WireMessage, build_messages, request_text, shown_images
from worker.model.rules import Rules, to_wire
from worker.tokens import estimate_tokens

NO_RESULT = "(no result yet)"


def context_of(db: Database, job_id: str) -> dict[str, Any]:
    """The messages and tools of the job's next request, with their estimated tokens. Raises JobNotFound.

    A call that is running, or parked until somebody answers, stands with `NO_RESULT` and `pending`. What is still to
    come before the call, unread comments and nudges, is not in it. Without messages: the movement has not begun.
    """
    row = get_job(db, job_id)
    view: dict[str, Any] = {name: row[name] for name in ("movement", "visit")}
    view |= {"job": job_id, "unread_comments": row["inbox_total"] - row["inbox_seen"]}
    if not row["visit_seq"]:
        return view | {"messages": [], "tools": [], "tools_tokens": 0, "tokens": 0}
    rows = load_view(db, job_id, row["visit_seq"], row["tail_seq"], row["summary_seq"])
    built, pending, images = _request(rows, row["trim_seq"])
    messages = [_part(message, pending, images) for message in built]
    messages[1]["blocks"] = [
        {"block": (row.extra or {}).get("block", row.kind), "tokens": estimate_tokens(row.content or "")}
        for row in rows
        if row.kind in ("head", "summary")
    ]
    tools = (rows[0].extra or {}).get("tools", [])
    tools_tokens = estimate_tokens(request_text([], tools))
    total = tools_tokens + sum(message["tokens"] for message in messages)
    view["fullness"] = _fullness(row)
    return view | {"messages": messages, "tools": tools, "tools_tokens": tools_tokens, "tokens": total}


def _request(
    rows: Sequence[Message], trim_seq: int
) -> tuple[list[WireMessage], list[Message], dict[str, dict[str, Any]]]:
    """The messages, the results that are still to come, and the images that are shown, by their URLs.

    As an endpoint without ways of its own has it; an image stands as its name, not as a megabyte of text.
    """
    pending = [_without_result(rows[-1], call.id, call.name) for call in unanswered(list(rows))]
    images = {_url(image): image for image in shown_images(rows)}
    urls = {image["sha"]: url for url, image in images.items()}
    return to_wire(build_messages([*rows, *pending], urls, trim_seq), Rules(), ""), pending, images


def current_messages(rows: Sequence[Message], trim_seq: int) -> list[WireMessage]:
    """What an archive tells of the next request: its messages, and of each result the name of its tool."""
    built, _, _ = _request(rows, trim_seq)
    names = {call["id"]: call["name"] for row in rows for call in row.tool_calls or ()}
    return [
        {**message, "tool_name": names[message["tool_call_id"]]} if "tool_call_id" in message else message
        for message in built
    ]


def _fullness(row: Mapping[str, Any]) -> dict[str, Any]:
    """What the worker believes of the context's size, and what was done about it. Limits: as of the last reply."""
    size, marks = size_of(row), marks_of(row)
    return {
        "tokens": size.tokens,
        "measured": size.measured or None,
        "ratio": size.ratio,
        "usable": marks.usable or None,
        "compaction_at": marks.compact or None,
        "percent": size.tokens * 100 // marks.usable if marks.usable else None,
        "warned": marks.warned,
        "asked_to_wrap_up": marks.asked_to_wrap_up,
        "compactions": row["total_summaries"],
        "last_compactions_useless": marks.useless,
    }


def _without_result(last: Message, call_id: str, name: str) -> Message:
    return Message(
        last.seq + 1, last.visit, "tool", "tool", NO_RESULT, last.run_id, last.created_at,
        tool_call_id=call_id, tool_name=name,
    )  # fmt: skip


def _url(image: dict[str, Any]) -> str:
    return f"image:{image['sha']}"


def _part(message: WireMessage, pending: list[Message], images: dict[str, dict[str, Any]]) -> dict[str, Any]:
    tokens = estimate_tokens(request_text([message], []))
    if isinstance(message.get("content"), list):
        tokens += sum(
            images[part["image_url"]["url"]]["tokens"] for part in message["content"] if "image_url" in part
        )
    part = {"message": message, "tokens": tokens}
    if message.get("tool_call_id") in {row.tool_call_id for row in pending}:
        part["pending"] = True
    return part


def answer_lines(asked: Iterable[str], tell: Callable[[str], object]) -> None:
    """Answers each line of rows with a line of messages, or of what is wrong with them."""
    for line in asked:
        question = json.loads(line)
        answer: dict[str, Any]
        try:
            rows = [Message(**row) for row in question["rows"]]
            answer = {"messages": current_messages(rows, question["trim_seq"])}
        except Exception as error:  # noqa: BLE001 - one job's rows; the next one's may be right
            answer = {"error": f"{type(error).__name__}: {error}"}
        tell(json.dumps(answer) + "\n")


def main(arguments: list[str]) -> int:
    """Prints the context of the one job that is named, or answers lines. Returns the exit code."""
    if not arguments:
        answer_lines(sys.stdin, lambda line: (sys.stdout.write(line), sys.stdout.flush()))
        return 0
    [job_id] = arguments
    try:
        with open_installation(load_settings()) as installation:
            context = context_of(installation.db, job_id)
    except SostenutoError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(json.dumps(context, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
