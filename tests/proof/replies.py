"""What the model may answer in a story, drawn by Hypothesis, and where a worker may die or be disturbed."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from storage.crashpoints import CrashPoint
from tests.agent.stage import calls, go
from tests.proof.world import CHILD
from tests.strict_endpoint import Answer, Call, HttpFailure, Reply

SUMMARISED = Reply("What was done so far.")


def call(name: str, **arguments: Any) -> Call:
    return Call(name, arguments)


MUCH = calls(call("Act", n=250), call("Again", n=250))
_todos = st.lists(st.sampled_from(("pending", "in_progress", "completed")), max_size=3).map(
    lambda states: call(
        "todo_write",
        todos=[{"id": str(n), "content": f"part {n}", "status": state} for n, state in enumerate(states)],
    )
)
_work = st.one_of(
    st.sampled_from((10, 600)).map(lambda n: call("Act", n=n)),
    st.sampled_from((10, 600)).map(lambda n: call("Again", n=n)),
    _todos,
    st.just(call("spawn_subtask", instruction="A part.", piece=CHILD)),
    st.just(call("No_Such_Tool")),
    st.just(Call("Act", '{"n": ')),
)
_steps = st.sampled_from(
    ("COMPLETE", "COMPLETE", "ASK", "ASK", "ABORT", "WAIT_SUBTASKS", "WAIT_SUBTASKS", "act", "plan")
)
_transition = _steps.map(lambda step: go(step, f"to {step}").calls[0])
_broken = HttpFailure(500, {"error": {"message": "broken"}})
_failure = st.sampled_from(
    (
        _broken,
        _broken,
        HttpFailure(401, {"error": {"code": "invalid_api_key", "message": "no", "type": "invalid_api_key"}}),
        HttpFailure(400, {"error": {"code": "context_length_exceeded", "message": "too long"}}),
    )
)

_steps_of_work: st.SearchStrategy[Answer] = st.lists(_work, min_size=1, max_size=3).map(
    lambda made: calls(*made)
)

AGENT: st.SearchStrategy[Answer] = st.one_of(
    _steps_of_work,
    _steps_of_work,
    _steps_of_work,
    _transition.map(calls),
    st.tuples(st.lists(_work, max_size=2), st.lists(_transition, min_size=1, max_size=2)).map(
        lambda parts: calls(*parts[0], *parts[1])
    ),
    st.sampled_from((Reply("Just words."), Reply(None), Reply("cut", finish_reason="length"))),
    _failure,
)
SUMMARIES: st.SearchStrategy[Answer] = st.one_of(
    st.just(SUMMARISED), st.just(SUMMARISED), st.just(Reply("echo " * 4000)), _failure
)

# Where a slice's thread holds no transaction: other things may happen there meanwhile.
_CALLS = (CrashPoint.MODEL_CALLING, CrashPoint.MODEL_REPLIED, CrashPoint.TOOL_STARTING, CrashPoint.TOOL_ENDED)
_GO_ON = ("claim", "visit", "gap", "reply", "result", "transition", "subtask")
BETWEEN = (*(CrashPoint(f"{name}.committed") for name in _GO_ON), *_CALLS)
_SLICES = (
    "claim",
    "visit",
    "gap",
    "reply",
    "result",
    "trim",
    "swap",
    "transition",
    "subtask",
    "end",
    "summary",
)
DEADLY = (
    *(CrashPoint(f"{name}.{when}") for name in _SLICES for when in ("committing", "committed")),
    *_CALLS,
)


def told(answer: Answer) -> str:
    """An answer on one line, for the report of a failing story."""
    if isinstance(answer, HttpFailure):
        return str(answer.status)
    assert isinstance(answer, Reply)
    made = [f"{made.name} {json.dumps(made.arguments)[:60]}" for made in answer.calls]
    return " + ".join(made) or repr((answer.text or "")[:20])
