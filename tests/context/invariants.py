"""What holds of every context, whatever its history. Each function is one promise; AssertionError or Refused where it is broken."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from storage.records import Message
from tests.context.histories import Asked, Compacted, History
from tests.strict_endpoint.rules import Profile, check, check_prefix
from worker.cutting import TURNS, choose_cut, freed_by_trimming, is_trimmed, shown_tokens, trimmed
from worker.flattening import flatten
from worker.layout import IMAGES, INHERITED, INSTRUCTION, summary_text
from worker.model.rules import Rules
from worker.model.script_view import Conversation
from worker.reminders import neutral, on_the_wire, reminder_kind

# Endpoints that differ: how requests are brought into their form, and what they refuse.
DIALECTS = (
    (Rules(vision=False), Profile(vision=False)),
    (Rules(vision=False, user_after_tool=False), Profile(vision=False, user_after_tool=False)),
    (Rules(system_role=False), Profile(system_role=False)),
    (Rules(parallel_calls=False), Profile()),
    (Rules(id_format="mistral", null_content=False), Profile()),
)


def a_request_is_valid_for_the_strict_endpoint(history: History) -> None:
    for asked in history.asked:
        check(asked.body, Profile())
    for rules, profile in DIALECTS:
        check(history.asked[-1].sent(rules), profile)


def pinned_messages_stay_byte_for_byte(history: History) -> None:
    """The system message, and the head: a compaction inserts its block and changes nothing else."""
    system, *_ = history.rows
    inherited, rest = _head_texts(history)
    for asked in history.asked:
        first, head, *_ = asked.messages
        assert first == {"role": "system", "content": system.content}
        text = _text(head)
        assert text.startswith(inherited)
        assert text.endswith(rest) if _compacted(asked) else text.startswith(inherited + rest)


def no_call_without_result_and_no_result_without_call(history: History) -> None:
    """In call order, each with its own result's text, right after its reply."""
    for asked in history.asked:
        results = {row.tool_call_id: row for row in asked.rows if row.role == "tool"}
        built = asked.messages
        made = [call["id"] for message in built for call in message.get("tool_calls", ())]
        assert [message["tool_call_id"] for message in built if message["role"] == "tool"] == made
        assert set(made) == results.keys()
        assert len(set(made)) == len(made)
        for message in built:
            if message["role"] == "tool":
                row = results[message["tool_call_id"]]
                shortened = is_trimmed(row, asked.trim_seq)
                assert message["content"] == neutral(trimmed(row) if shortened else row.content or "")


def the_instruction_stands_last_in_the_head(history: History) -> None:
    """Byte for byte, reminder tags and all. Before the first compaction a person's words may follow it."""
    instruction = next(row for row in history.rows if (row.extra or {}).get("block") == INSTRUCTION)
    for asked in history.asked:
        head = _text(asked.messages[1])
        assert (instruction.content or "") in head
        if _compacted(asked):
            assert head.endswith(instruction.content or "")


def a_request_only_grows_between_compactions(history: History) -> None:
    for before, after in itertools.pairwise(history.asked):
        if before.epoch == after.epoch:
            check_prefix(before.body["messages"], after.body["messages"], Profile())


def each_message_is_in_the_view_or_in_exactly_one_summary(history: History) -> None:
    """Also in the second round and in the tenth; and what a summary covers was really told to the summariser."""
    taken = [row.seq for made in history.compacted for row in made.cut.taken]
    assert taken == sorted(set(taken))
    shown = {row.seq for row in history.view() if row.kind in TURNS}
    for row in history.rows:
        if row.kind in TURNS:
            assert (row.seq in shown) != (row.seq in taken), row.seq
    for made in history.compacted:
        told = Counter(int(entry.text[1 : entry.text.index("]")]) for entry in flatten(made.cut.taken))
        assert told == Counter(row.seq for row in made.cut.taken if _says_something(row))


def the_kept_tail_starts_at_an_assistant_message(history: History) -> None:
    for asked in history.asked:
        if _compacted(asked):
            assert [message["role"] for message in asked.messages[2:3]] == ["assistant"]


def a_cut_keeps_the_newest_messages(history: History) -> None:
    """As many as were ordered where they fit, the last reply always, and nothing that was taken."""
    for made in history.compacted:
        turns = [row for row in made.before if row.kind in TURNS]
        kept = [row for row in turns if row.seq >= made.cut.tail_seq]
        assert [*made.cut.taken, *kept] == turns
        assert len(made.cut.taken) >= made.min_to_compress
        assert any(row.role == "assistant" for row in kept)
        newest = turns[-made.keep_recent :]
        whole = itertools.dropwhile(lambda row: row.role != "assistant", newest)
        if sum(shown_tokens(row, made.trim_seq) for row in newest) <= made.most_kept:
            assert {row.seq for row in whole} <= {row.seq for row in kept}


def a_person_s_words_before_the_kept_tail_stay_word_for_word(history: History) -> None:
    """What was said since the last reply that was taken; whatever stands between is no reason to lose it."""
    for made, asked in _after_each(history):
        kept = [row for row in made.before if row.kind in TURNS and row.seq >= made.cut.tail_seq]
        first = next(row for row in kept if row.role == "assistant")
        before = [row for row in made.before if row.kind in TURNS and row.seq < first.seq]
        said = list(itertools.takewhile(lambda row: row.kind == "gap", reversed(before)))
        text = _text(asked.messages[1])
        for row in said:
            if reminder_kind(row) is None and IMAGES not in (row.extra or {}):
                assert on_the_wire(row) in text


def the_newest_summary_alone_is_shown(history: History) -> None:
    for asked in history.asked:
        summaries = [row for row in asked.rows if row.kind == "summary"]
        head = _text(asked.messages[1])
        for row in summaries[-1:]:
            assert summary_text(row) in head
        headings = ("## Your work so far\nThis summary stands for", "## これまでの作業\nこの要約は")
        assert sum(map(head.count, headings)) == len(summaries[-1:])


def only_reminders_speak_as_the_system(history: History) -> None:
    """Tags in results, comments, summaries and blocks are neutral; the instruction and the agent's own words are theirs."""
    instruction = next(row for row in history.rows if (row.extra or {}).get("block") == INSTRUCTION)
    for asked in history.asked:
        told = "\n".join(
            _text(message) for message in asked.messages[1:] if message["role"] in ("user", "tool")
        )
        told = told.replace(instruction.content or "", "", 1)
        ours = sum(reminder_kind(row) is not None and not _is_early(row, asked) for row in asked.rows)
        assert len(re.findall(r"<\s*system[\s_-]*reminder", told, re.IGNORECASE)) == ours


def of_the_images_before_a_compaction_the_newest_alone_is_shown(history: History) -> None:
    """And all since; the others stand as their names. None twice."""
    for asked in history.asked:
        summary = max((row.seq for row in asked.rows if row.kind == "summary"), default=0)
        noted = [
            (row.seq, one["path"])
            for row in asked.rows
            if row.kind == "gap"
            for one in (row.extra or {}).get(IMAGES, ())
        ]
        older = [path for seq, path in noted if seq < summary]
        newer = [path for seq, path in noted if seq > summary]
        built = asked.messages
        shown = [
            part["image_url"]["url"]
            for message in built
            if isinstance(message["content"], list)
            for part in message["content"]
            if part["type"] == "image_url"
        ]
        assert shown == [f"data:{path}" for path in (*older[-1:], *newer)]
        told = "\n".join(_text(message) for message in built if message["role"] == "user")
        assert all(path in told for path in older[:-1])


def an_open_call_is_neither_sent_nor_cut(history: History) -> None:
    for asked in history.open_views:
        with pytest.raises(ValueError, match="has no result"):
            _ = asked.messages
        assert choose_cut(asked.rows, keep_recent=1, min_to_compress=1, most_kept=10**9) is None


def what_shortening_frees_is_what_the_view_loses(history: History) -> None:
    for asked in history.asked:
        turns = [row for row in asked.rows if row.kind in TURNS]
        whole = sum(shown_tokens(row, 0) for row in turns)
        shortened = sum(shown_tokens(row, asked.trim_seq) for row in turns)
        assert whole - shortened == freed_by_trimming(turns, asked.trim_seq, 0) >= 0


def the_scripted_model_knows_its_step(history: History) -> None:
    """Also after compactions: the replies that a summary stands for count."""
    for asked in history.asked:
        newest = asked.rows[-1].seq
        given = sum(row.role == "assistant" and row.seq <= newest for row in history.rows)
        assert Conversation(asked.messages, []).step == given


INVARIANTS: tuple[Callable[[History], None], ...] = (
    a_request_is_valid_for_the_strict_endpoint,
    pinned_messages_stay_byte_for_byte,
    no_call_without_result_and_no_result_without_call,
    the_instruction_stands_last_in_the_head,
    a_request_only_grows_between_compactions,
    each_message_is_in_the_view_or_in_exactly_one_summary,
    the_kept_tail_starts_at_an_assistant_message,
    a_cut_keeps_the_newest_messages,
    a_person_s_words_before_the_kept_tail_stay_word_for_word,
    the_newest_summary_alone_is_shown,
    only_reminders_speak_as_the_system,
    of_the_images_before_a_compaction_the_newest_alone_is_shown,
    an_open_call_is_neither_sent_nor_cut,
    what_shortening_frees_is_what_the_view_loses,
    the_scripted_model_knows_its_step,
)


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    return "\n\n".join(part["text"] for part in content or () if part["type"] == "text")


def _compacted(asked: Asked) -> bool:
    return any(row.kind == "summary" for row in asked.rows)


def _head_texts(history: History) -> tuple[str, str]:
    """What was inherited, and the blocks after it: a summary stands between them."""
    heads = [row for row in history.rows if row.kind == "head"]
    blocks = [(row.extra or {}).get("block") for row in heads]
    texts = [
        row.content or "" if block == INSTRUCTION else on_the_wire(row)
        for row, block in zip(heads, blocks, strict=True)
    ]
    inherited = "".join(
        f"{text}\n\n" for text, block in zip(texts, blocks, strict=True) if block == INHERITED
    )
    return inherited, "\n\n".join(
        text for text, block in zip(texts, blocks, strict=True) if block != INHERITED
    )


def _after_each(history: History) -> Iterator[tuple[Compacted, Asked]]:
    """Each compaction with the first view after it."""
    for made in history.compacted:
        yield made, next(asked for asked in history.asked if made.summary in asked.rows)


def _says_something(row: Message) -> bool:
    """Reminders are left out of summaries; an empty result says at least whose it is."""
    if reminder_kind(row) is not None:
        return False
    return bool((row.content or "").strip() or row.tool_calls or (row.extra or {}).get(IMAGES))


def _is_early(row: Message, asked: Asked) -> bool:
    """Before the first reply of a compacted view."""
    first = next((turn.seq for turn in asked.rows if turn.role == "assistant"), 0)
    return _compacted(asked) and row.seq < first
