"""`sostenuto context`: what the model would see now."""

from __future__ import annotations

from typing import Any

from jobs.cli import options, render
from jobs.cli.context import opened_job
from jobs.cli.text import to_json


def context(job: options.JobId, json: options.Json = False) -> None:
    """Print what the model would see now. Every message of its next request, with estimated tokens."""
    from jobs.context_view import read_context

    with opened_job(job) as (installation, job_id):
        view = read_context(installation, job_id)
    if json:
        print(to_json(view))
        return
    for number, part in enumerate(view["messages"]):
        _print_part(number, part)
    _print_sum(view)


def _print_part(number: int, part: dict[str, Any]) -> None:
    message = part["message"]
    blocks = ", ".join(f"{block['block']} {block['tokens']:,}" for block in part.get("blocks", []))
    about = f"{number} {message['role']} · {part['tokens']:,} tokens" + (f" ({blocks})" if blocks else "")
    render.line((f"── {about}", "bold"))
    if message["content"]:
        render.line(message["content"].rstrip("\n"))
    for call in message.get("tool_calls", []):
        render.line(f"→ {call['function']['name']} {call['function']['arguments']}")
    render.line()


def _print_sum(view: dict[str, Any]) -> None:
    if not view["messages"]:
        render.line((f"its movement {view['movement']} has not begun: a worker builds its context", "dim"))
        return
    names = ", ".join(tool["function"]["name"] for tool in view["tools"])
    render.line((f"── tools · {view['tools_tokens']:,} tokens", "bold"))
    render.line(names)
    render.line()
    total = f"{len(view['messages'])} messages and the tools: about {view['tokens']:,} tokens"
    unread = f"; {view['unread_comments']} unread comments follow" if view["unread_comments"] else ""
    render.line((total + unread, "dim"))
    render.line((_fullness_text(view["fullness"]), "dim"))


def _fullness_text(fullness: dict[str, Any]) -> str:
    counted = "the endpoint's count" if fullness["measured"] else "estimated"
    text = f"its worker counts {fullness['tokens']:,} tokens ({counted})"
    if fullness["usable"]:
        text += (
            f", {fullness['percent']}% of {fullness['usable']:,}; compaction at {fullness['compaction_at']:,}"
        )
    if fullness["compactions"]:
        text += f"; summarised so far: {fullness['compactions']}"
    if fullness["asked_to_wrap_up"]:
        text += "; asked to wrap up"
    return text
