"""Which hooks are called when a job ends or stops, and what they are told. Workers make the calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.settings import Settings
from jobs.states import TERMINAL, State
from jobs.views import view_of
from storage.records import StateHooks

COMPLETION = "completion"
PAUSE = "pause"
STOPPED = frozenset({State.PAUSED, State.WAITING_HUMAN})  # until a person acts, or a question's deadline


def state_hooks(settings: Settings) -> StateHooks:
    """The configured hooks, by the state whose beginning they are told of."""
    names = {str(state): settings.hooks.completion for state in TERMINAL}
    names |= {str(state): settings.hooks.pause for state in STOPPED}
    return StateHooks(names, hook_event)


def hook_event(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a hook is told: plain JSON data. The same event has the same `event_id`, however often it is told."""
    return {
        "event_id": f"{row['id']}/{row['event_seq']}",
        "event": COMPLETION if row["state"] in TERMINAL else PAUSE,
        "job": view_of({**row, "worker": None}).as_dict(),
    }
