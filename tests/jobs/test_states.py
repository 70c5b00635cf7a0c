"""The table of states: complete, sane, and the same in the docs; a reason and a next step in words for each."""

from __future__ import annotations

import re
import string
from pathlib import Path
from typing import Any

import pytest

from jobs import states
from jobs.reasons import WORDINGS, Reason, explain
from jobs.states import LEASED, RESUME_EVENTS, TERMINAL, TRANSITIONS, Event, State, sources, target
from jobs.views import view_of
from storage.engine import Database
from tests import factories

DOCUMENT = Path(__file__).parents[2] / "docs" / "states.md"


# --- the table ---


def test_every_state_is_reached_and_left() -> None:
    reached = {State.QUEUED, State.INHERITING}  # by submitting
    while more := {end for (source, _), end in TRANSITIONS.items() if source in reached} - reached:
        reached |= more
    assert reached == set(State)
    assert {source for source, _ in TRANSITIONS} == set(State) - {State.SUCCEEDED}


def test_every_event_happens_somewhere() -> None:
    assert {event for _, event in TRANSITIONS} == set(Event)


def test_from_every_state_but_success_the_end_can_be_reached() -> None:
    """No state is a trap: whatever happened, the job can still end, and can still succeed."""
    for goal in (State.SUCCEEDED, State.CANCELLED):
        leads = {goal}
        while more := {source for (source, _), end in TRANSITIONS.items() if end in leads} - leads:
            leads |= more
        assert leads >= set(State) - {State.SUCCEEDED}


def test_a_finished_job_leaves_only_by_a_retry() -> None:
    for state in TERMINAL:
        out = {event: end for (source, event), end in TRANSITIONS.items() if source is state}
        assert out == ({} if state is State.SUCCEEDED else {Event.RETRY: State.QUEUED})


def test_every_unfinished_job_can_be_paused_and_cancelled() -> None:
    for state in set(State) - TERMINAL:
        assert target(state, Event.CANCEL) is State.CANCELLED
        assert (target(state, Event.PAUSE) is State.PAUSED) is (state is not State.PAUSED)


def test_a_pause_can_be_taken_back_from_everything_that_is_paused() -> None:
    assert set(RESUME_EVENTS) == set(State) - TERMINAL - {State.PAUSED, State.RUNNING}
    for waited_for, event in RESUME_EVENTS.items():
        assert target(State.PAUSED, event) is waited_for
        assert sources(event) == (State.PAUSED,)


def test_only_a_claim_begins_to_run_and_only_leased_jobs_lose_a_lease() -> None:
    assert [pair for pair, end in TRANSITIONS.items() if end is State.RUNNING] == [
        (State.QUEUED, Event.CLAIM)
    ]
    assert set(sources(Event.LEASE_EXPIRED)) == LEASED
    assert set(sources(Event.REQUEUE)) == LEASED
    for event in (Event.SUCCEED, Event.ASK, Event.ABORT):
        assert sources(event) == (State.RUNNING,)


def test_the_terminal_states_are_reached_by_their_own_events() -> None:
    ends = {State.SUCCEEDED: Event.SUCCEED, State.FAILED: Event.FAIL, State.ABORTED: Event.ABORT}
    ends[State.CANCELLED] = Event.CANCEL
    for (_, event), end in TRANSITIONS.items():
        assert (end in TERMINAL) == (event in ends.values())
        if end in TERMINAL:
            assert ends[end] is event


def test_sources_and_target_are_the_table() -> None:
    for state in State:
        for event in Event:
            assert target(state, event) == TRANSITIONS.get((state, event))
            assert (state in sources(event)) == ((state, event) in TRANSITIONS)


# --- the words ---


def test_every_reason_has_its_words() -> None:
    assert set(WORDINGS) == set(Reason)
    for wording in WORDINGS.values():
        for text in (wording.text, wording.next):
            assert text
            assert text[0] != " "
            assert not text.endswith(".")
            assert "\n" not in text


@pytest.mark.parametrize("reason", Reason)
def test_every_template_formats_with_and_without_its_data(reason: Reason) -> None:
    wording = WORDINGS[reason]
    names = {
        name
        for text in (wording.text, wording.next)
        for _, name, _, _ in string.Formatter().parse(text)
        if name
    }
    data = {name: 3 if name == "limit" else f"<{name}>" for name in names}
    text, following = explain(State.QUEUED, reason, data)
    assert text is not None
    assert following is not None
    assert [name for name in names if str(data[name]) not in text + following] == []
    assert "unknown" not in text + following
    text, following = explain(State.QUEUED, reason, {})
    assert text is not None
    assert "{" not in text


def test_data_is_never_taken_for_a_template() -> None:
    text, _ = explain(State.FAILED, Reason.MODEL_REFUSED, {"detail": "{id} {0} {x.__class__} }{"})
    assert text == "the model refused: {id} {0} {x.__class__} }{"


def test_a_running_job_says_what_was_asked_of_it() -> None:
    assert explain(State.RUNNING, None, {}) == (None, None)
    assert explain(State.RUNNING, None, {"pause_requested": True})[0] == "pausing after this step"
    both = {"pause_requested": True, "cancel_requested": True}
    assert explain(State.RUNNING, None, both)[0] == "cancelling"


def test_every_state_but_running_says_why_and_what_next(db: Database) -> None:
    for state in State:
        _check_words(db, state)


def _check_words(db: Database, state: State) -> None:
    row: dict[str, Any] = factories.job_now(db, factories.make_job(db, state)) | {"worker": None}
    view = view_of(row)
    assert (view.reason_text is None) == (state is State.RUNNING)
    assert (view.next_action is None) == (state is State.RUNNING)
    if view.next_action and "sostenuto" in view.next_action and "{" not in view.next_action:
        assert view.id in view.next_action
    data = view.as_dict()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", data["created_at"])
    assert (data["completed_at"] is None) == (state not in TERMINAL)


def test_a_schedule_is_shown_as_a_time(db: Database) -> None:
    changes: dict[str, Any] = {"reason": Reason.SCHEDULED, "reason_data": {"until": 1_800_000_000.0}}
    row = factories.job_now(db, factories.make_job(db, **changes)) | {"worker": None}
    assert view_of(row).reason_text == "scheduled for 2027-01-15T08:00:00.000Z"


# --- the document ---

_STATE_NOTES = re.compile(r"^\s+([A-Z_]+) = (?:\(\s*)?\"([a-z_]+)\"(?:\s*\))?\s+# (.+)$", re.MULTILINE)


def _state_notes() -> dict[str, str]:
    """What the enum's comments say of each state."""
    source = Path(states.__file__).read_text()
    body = source[source.index("class State") : source.index("class Event")]
    return {value: note for _, value, note in _STATE_NOTES.findall(body)}


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def document() -> str:
    """`docs/states.md`, made from the table, the enum's comments and the wordings."""
    notes = _state_notes()
    lines = [
        "# States",
        "",
        "Generated from `jobs/states.py` and `jobs/reasons.py`: `python -m tests.jobs.test_states` writes it, and a test",
        "compares. An event that is not in the diagram is refused and changes nothing.",
        "",
        "```mermaid",
        states.mermaid(),
        "```",
        "",
        "| state | what the job is doing |",
        "|---|---|",
        *(f"| `{state}` | {_cell(notes[state])} |" for state in State),
        "",
        "## Reasons",
        "",
        "Every state but `running` carries one, with its data; command line, API and page show the same words.",
        "",
        "| reason | why | what next |",
        "|---|---|---|",
        *(
            f"| `{reason}` | {_cell(WORDINGS[reason].text)} | {_cell(WORDINGS[reason].next)} |"
            for reason in Reason
        ),
    ]
    return "\n".join(lines) + "\n"


def test_every_state_is_commented() -> None:
    assert set(_state_notes()) == set(State)


def test_the_document_is_generated_from_the_table() -> None:
    assert DOCUMENT.read_text() == document(), "run: python -m tests.jobs.test_states"


def test_the_diagram_has_every_transition() -> None:
    diagram = states.mermaid()
    for (source, event), end in TRANSITIONS.items():
        assert f"    {source} --> {end}: {event}\n" in diagram
    for state in State:
        assert (f"    {state} --> [*]" in diagram) == (state in TERMINAL)


if __name__ == "__main__":
    DOCUMENT.write_text(document())
