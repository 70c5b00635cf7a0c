"""Why a job is in its state, and what its owner can do next, for people with buttons instead of a command line.

The reasons are those of `jobs.reasons`; only what to do next is said for the page, and all of it in two languages.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Any

from jobs.durations import format_duration
from jobs.reasons import WORDINGS, Reason, reason_of
from jobs.states import TERMINAL, State
from jobs.web.words import Words


class _Forgiving(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "?"


def why(row: Mapping[str, Any], words: Words, zone: tzinfo) -> str:
    """The reason of a job's row in words; empty where its state says it all."""
    state, (reason, _) = row["state"], reason_of(row)
    if state == State.RUNNING:
        asked = next((name for name in ("cancel_requested", "pause_requested") if row[name]), None)
        return words(f"reason.{asked}") if asked else ""
    if reason is None:
        return ""
    template = WORDINGS[Reason(reason)].text
    if words.language != "en":
        template = words.get(f"reason.{reason}") or template
    return template.format_map(_facts(row, words, zone))


def what_next(row: Mapping[str, Any], words: Words, zone: tzinfo) -> str:
    """What happens by itself, or what its owner can do."""
    state, (reason, _) = State(row["state"]), reason_of(row)
    if state is State.RUNNING:
        asked = row["cancel_requested"] or row["pause_requested"]
        return words("next.stopping") if asked else words("next.running")
    key = _KEYS.get(reason or "") or ("retry" if state in TERMINAL else "worker")
    if key == "answer" and (row["pending_question"] or {}).get("until"):
        key = "answer_until"
    return words(f"next.{key}").format_map(_facts(row, words, zone))


_KEYS: dict[str, str] = {
    "inheriting": "by_itself",
    "context_full": "by_itself",
    "compacting": "by_itself",
    "mcp_server_missing": "mcp",
    Reason.SCHEDULED: "scheduled",
    Reason.LIMITED: "limited",
    Reason.MODEL_UNAVAILABLE: "again_at",
    Reason.RATE_LIMITED: "again_at",
    Reason.SUBTASKS: "subtasks",
    Reason.PAUSED_BY_USER: "resume",
    Reason.BUDGET_EXCEEDED: "raise",
    Reason.QUESTION: "answer",
    Reason.COMPLETED: "done",
    Reason.MODEL_NOT_CONFIGURED: "configure",
    Reason.AUTHENTICATION: "key",
    Reason.QUOTA: "quota",
}


def _facts(row: Mapping[str, Any], words: Words, zone: tzinfo) -> dict[str, Any]:
    facts = _Forgiving({"id": row["id"], **reason_of(row)[1]})
    facts |= {name: row[name] for name in ("children_open", "children_total")}
    if "until" in facts:
        facts["at"] = moment(facts["until"], zone)
    if row["reason"] == Reason.BUDGET_EXCEEDED and isinstance(facts.get("limit"), int | float):
        limit = facts["limit"]
        is_time = facts.get("budget") == "time"
        facts["limit"] = format_duration(limit) if is_time else f"{limit:,}".removesuffix(".0")
    if "kind" in facts:
        facts["kind"] = words.get(f"limit.{facts['kind']}") or facts["kind"]
    if "budget" in facts:
        facts["budget"] = words.get(f"budget.{facts['budget']}") or facts["budget"]
    return facts


def moment(seconds: float, zone: tzinfo) -> str:
    """A moment in this zone, to the minute, with the zone's name."""
    return f"{datetime.fromtimestamp(seconds, zone):%Y-%m-%d %H:%M %Z}"
