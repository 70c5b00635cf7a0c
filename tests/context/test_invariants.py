"""The promises of `tests.context.invariants`, over arbitrary histories. `make fuzz` tries many more of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, event, given, settings

from storage.records import Message
from tests.context import invariants
from tests.context.fuzzing import patient, thorough
from tests.context.histories import History, histories, parked
from tests.context.invariants import INVARIANTS
from tests.strict_endpoint.rules import Refused
from worker import layout
from worker.cutting import TURNS, Cut, choose_cut
from worker.reminders import on_the_wire


@patient
@thorough(1_000)
@given(histories())
def test_every_invariant_of_the_context(history: History) -> None:
    event(f"{min(len(history.compacted), 5)} compactions")
    for invariant in INVARIANTS:
        invariant(history)


@patient
@thorough(200)
@given(histories(most_turns=6))
def test_a_question_that_waits_is_neither_sent_nor_cut(history: History) -> None:
    """A parked call, its sibling answered; once its answer is there, everything holds again."""
    reply = parked(history)
    invariants.an_open_call_is_neither_sent_nor_cut(history)
    assert reply.tool_calls is not None
    history.answer(reply.tool_calls[1], "blue")
    history.ask()
    history.compact(1, 1, 0, "summary")
    history.ask()
    for invariant in INVARIANTS:
        invariant(history)


# --- what each invariant is good for: a fault that it finds ---


def _cut(change: Callable[[Cut], Cut]) -> Callable[..., Cut | None]:
    def mutant(rows: list[Message], **limits: Any) -> Cut | None:
        cut = choose_cut(rows, **limits)
        return cut and change(cut)

    return mutant


def _summary_last(blocks: list[Message], earlier: list[Message]) -> dict[str, Any]:
    return {"role": "user", "content": "\n\n".join(layout._head_text(row) for row in (*blocks, *earlier))}


def _two_in_a_row(built: list[Any], content: Any) -> None:
    built.append({"role": "user", "content": content})


def _split_by_count(rows: list[Message], *, keep_recent: int, **_: Any) -> Cut | None:
    turns = [row for row in rows if row.kind in TURNS]
    taken = tuple(turns[:-keep_recent])
    return Cut(taken, taken[-1].seq + 1, 0) if len(taken) > 1 and keep_recent < len(turns) else None


FAULTS: tuple[tuple[Callable[[History], None], str, Any], ...] = (
    (invariants.a_request_is_valid_for_the_strict_endpoint, "worker.layout._append_user", _two_in_a_row),
    (invariants.no_call_without_result_and_no_result_without_call, "tests.context.histories.choose_cut", _split_by_count),
    (invariants.pinned_messages_stay_byte_for_byte, "worker.layout._head_text", on_the_wire),
    (invariants.the_instruction_stands_last_in_the_head, "worker.layout._head", _summary_last),
    (
        invariants.a_request_only_grows_between_compactions,
        "tests.context.histories.shown_images",
        lambda rows: layout.shown_images(rows)[-1:],
    ),
    (
        invariants.each_message_is_in_the_view_or_in_exactly_one_summary,
        "tests.context.histories.choose_cut",
        _cut(lambda cut: replace(cut, taken=cut.taken[1:])),
    ),
    (invariants.the_kept_tail_starts_at_an_assistant_message, "tests.context.histories.choose_cut", _split_by_count),
    (
        invariants.a_cut_keeps_the_newest_messages,
        "tests.context.histories.choose_cut",
        lambda rows, **limits: choose_cut(rows, **limits | {"keep_recent": 1}),
    ),
    (invariants.a_person_s_words_before_the_kept_tail_stay_word_for_word, "worker.cutting._last_words", lambda _: 0),
    (invariants.the_newest_summary_alone_is_shown, "worker.layout.SUMMARY", "what was done, up to {last}"),
    (invariants.only_reminders_speak_as_the_system, "worker.layout.neutral", lambda text: text),
    (
        invariants.of_the_images_before_a_compaction_the_newest_alone_is_shown,
        "worker.layout.KEPT_IMAGES",
        3,
    ),
    (invariants.an_open_call_is_neither_sent_nor_cut, "worker.cutting._is_open", lambda _: False),
    (
        invariants.what_shortening_frees_is_what_the_view_loses,
        "tests.context.invariants.shown_tokens",
        lambda row, _: row.tokens,
    ),
    (invariants.the_scripted_model_knows_its_step, "tests.context.histories.replies_left_out", lambda *_: 0),
)  # fmt: skip


def test_every_invariant_has_its_fault() -> None:
    assert {invariant for invariant, _, _ in FAULTS} == set(INVARIANTS)


@pytest.mark.parametrize(
    ("invariant", "target", "fault"), FAULTS, ids=[fault[0].__name__ for fault in FAULTS]
)
def test_a_fault_is_found_by_its_invariant(
    invariant: Callable[[History], None], target: str, fault: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, fault)

    @settings(thorough(200), phases=[Phase.generate])
    @given(histories())
    def holds(history: History) -> None:
        invariant(history)

    with pytest.raises((AssertionError, Refused, ValueError)):
        holds()
