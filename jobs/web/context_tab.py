"""What a job's model sees now, part by part: made from the view that a worker's program gives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.exchanges import exchange_files, list_exchanges
from jobs.installation import Installation

MESSAGES_SHOWN = 60
EXCHANGES_SHOWN = 20
ROLES = ("assistant", "tool", "user")


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the context. `kind` names its colour; `name` its block, where it has one."""

    kind: str
    name: str
    tokens: int
    x: float = 0.0
    width: float = 0.0


@dataclass(frozen=True, slots=True)
class Shown:
    """A message of the request: its text for reading, and all of it as JSON."""

    number: int
    role: str
    tokens: int
    text: str
    raw: str
    pending: bool


@dataclass(frozen=True, slots=True)
class ContextView:
    """The whole of it; of the messages the first two and the newest."""

    tokens: int
    shares: list[Share]
    messages: list[Shown]
    left_out: int
    tools: list[str]


def view_of(context: Mapping[str, Any]) -> ContextView:
    """From what `jobs.context_view.read_context` gives."""
    messages = [_shown(number, part) for number, part in enumerate(context["messages"])]
    shown = messages if len(messages) <= MESSAGES_SHOWN else messages[:2] + messages[2 - MESSAGES_SHOWN :]
    tools = [str((tool.get("function") or {}).get("name", "?")) for tool in context["tools"]]
    total = context["tokens"]
    return ContextView(total, _placed(_shares(context), total), shown, len(messages) - len(shown), tools)


def _shares(context: Mapping[str, Any]) -> list[Share]:
    parts = context["messages"]
    if not parts:
        return []
    shares = [Share("system", "", parts[0]["tokens"]), Share("tools", "", context["tools_tokens"])]
    blocks = parts[1].get("blocks") or []
    shares += [
        Share("summary", "", block["tokens"])
        if block["block"] == "summary"
        else Share("head", block["block"], block["tokens"])
        for block in blocks
    ]
    shares.append(Share("head", "", parts[1]["tokens"] - sum(block["tokens"] for block in blocks)))
    for role in ROLES:
        tokens = sum(part["tokens"] for part in parts[2:] if part["message"]["role"] == role)
        shares.append(Share(role, "", tokens))
    return [share for share in shares if share.tokens > 0]


def _placed(shares: list[Share], total: int) -> list[Share]:
    placed = []
    x = 0.0
    for share in shares:
        width = 100 * share.tokens / max(total, 1)
        placed.append(Share(share.kind, share.name, share.tokens, round(x, 2), round(width, 2)))
        x += width
    return placed


def _shown(number: int, part: Mapping[str, Any]) -> Shown:
    message = part["message"]
    content = message.get("content")
    pieces = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    text = "\n".join(
        str(piece.get("text", "")) if piece.get("type") == "text" else "[image]" for piece in pieces
    )
    calls = [
        f"→ {call['function']['name']} {call['function']['arguments']}"
        for call in message.get("tool_calls") or ()
    ]
    told = "\n".join(filter(None, [text, *calls]))
    raw = json.dumps(message, ensure_ascii=False, indent=2)
    return Shown(number, message["role"], part["tokens"], told, raw, bool(part.get("pending")))


def request_of(context: Mapping[str, Any], model: str | None) -> dict[str, Any]:
    """The next request's body, as far as it can be known before it is made."""
    request: dict[str, Any] = {"messages": [part["message"] for part in context["messages"]]}
    if context["tools"]:
        request["tools"] = context["tools"]
    return ({"model": model} if model else {}) | request


def newest_exchanges(installation: Installation, job_id: str) -> list[dict[str, Any]]:
    """The last calls of the model that are kept, the newest first, without their bodies."""
    data_dir = installation.settings.data_dir
    files = exchange_files(data_dir, job_id)[-EXCHANGES_SHOWN:]
    return list_exchanges(data_dir, job_id, files[0].seq - 1)[::-1] if files else []
