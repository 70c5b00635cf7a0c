"""The mind of a very long job: it is told facts in every way there is, works, and is asked for all of them at its end.

Whoever writes its summaries forgets one fact in each of them, for good. So at the end some facts are in the live context
and the others must be looked up; a fact counts as lost where one call of `recall` does not bring it back.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

WORK = "Act"  # the tool of a working step; its argument is the step's number
PLACES = ("comment", "todo", "plan")
TOLD_UNTIL = 0.85  # of the steps: the last facts, too, are to go through a few compactions
_FACT = re.compile(r"FACT ([a-z]+-\d+) = (\w+)")
_WORDS = (
    "harbour",
    "crane",
    "ledger",
    "tide",
    "signal",
    "anchor",
    "manifest",
    "winch",
    "buoy",
    "cargo",
    "berth",
    "pilot",
)


@dataclass(frozen=True, slots=True)
class Fact:
    """Something to be remembered. `place`: where it was told."""

    name: str
    value: str
    place: str

    @property
    def told(self) -> str:
        return f"FACT {self.name} = {self.value}"


@dataclass(frozen=True, slots=True)
class Said:
    """A reply: a text, or calls as (tool, arguments)."""

    text: str | None = None
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()


@dataclass
class Exam:
    """How each fact was known at the end."""

    live: list[Fact] = field(default_factory=list)
    looked_up: list[Fact] = field(default_factory=list)
    lost: list[Fact] = field(default_factory=list)


class LongStory:
    """Answers the requests of one job: `steps` steps with one call each, the last one its end.

    `comment` delivers a person's comment to the job, as from another process.
    """

    def __init__(self, steps: int, facts: int, comment: Callable[[str], None]) -> None:
        self.steps = steps
        self.exam = Exam()
        self.instruction_facts = [_fact(number, "instruction") for number in range(2)]
        self.forgotten: set[str] = set()
        self.rounds: set[str] = set()  # of summaries
        self._comment = comment
        told = [_fact(2 + number, PLACES[number % len(PLACES)]) for number in range(facts)]
        every = int(steps * TOLD_UNTIL) // facts
        self._due = {(number + 1) * every: fact for number, fact in enumerate(told)}
        self._facts = [*self.instruction_facts, *told]
        self.exam_at = steps - len(self._facts) - 2  # the step from which on it is asked
        self._said = 0
        self._to_look_up: list[Fact] | None = None
        self._asked: Fact | None = None

    @property
    def instruction(self) -> str:
        """The job's instruction."""
        facts = "\n".join(fact.told for fact in self.instruction_facts)
        return f"Work through the harbour's ledger, and keep in mind:\n{facts}"

    def answer(self, label: str, messages: Sequence[dict[str, Any]]) -> Said:
        """The reply to a request with this label: a summary, or the next step."""
        if "/compaction/" in label:
            return Said(self._summary(label, str(messages[-1]["content"])))
        self._said += 1
        self._hear(messages)
        if self._said >= self.steps:
            return _call("transition", next_step="COMPLETE", summary="The ledger is done.")
        if (fact := self._due.get(self._said)) is not None:
            return self._tell(fact)
        if self._said >= self.exam_at:
            return self._examined(messages)
        return _call(WORK, n=self._said)

    def _tell(self, fact: Fact) -> Said:
        if fact.place == "plan":
            return _call("plan", plan_type="revision", plan_content=f"Go on as planned. {fact.told}")
        if fact.place == "todo":
            item = {"id": fact.name, "content": fact.told, "status": "in_progress"}
            return _call("todo_write", todos=[item])
        self._comment(f"Please note: {fact.told}")
        return _call(WORK, n=self._said)

    # --- the summariser ---

    def _summary(self, label: str, request: str) -> str:
        """What it was given, in short: every fact that it sees but the oldest, which it never tells again."""
        seen = dict(_FACT.findall(request.partition("</task>")[2]))
        known = {name: value for name, value in seen.items() if name not in self.forgotten}
        this_round = label.rpartition(".")[0]  # its calls are numbered
        if this_round not in self.rounds and known:
            self.rounds.add(this_round)
            self.forgotten.add(next(iter(known)))
        told = [f"FACT {name} = {value}" for name, value in known.items() if name not in self.forgotten]
        return "\n".join([f"{self._said} entries of the ledger are done.", *told])

    # --- the exam ---

    def _examined(self, messages: Sequence[dict[str, Any]]) -> Said:
        if self._to_look_up is None:
            shown = "\n".join(_text(message) for message in messages)
            self.exam.live = [fact for fact in self._facts if fact.told in shown]
            self._to_look_up = [fact for fact in self._facts if fact not in self.exam.live]
        if not self._to_look_up:
            return _call(WORK, n=self._said)
        self._asked = self._to_look_up.pop(0)
        return _call("recall", query=f"FACT {self._asked.name}")

    def _hear(self, messages: Sequence[dict[str, Any]]) -> None:
        """The result of the one look-up that was made for a fact."""
        if self._asked is not None:
            results = [_text(message) for message in messages if message["role"] == "tool"]
            found = self.exam.looked_up if self._asked.told in results[-1] else self.exam.lost
            found.append(self._asked)
            self._asked = None


def result_of_work(step: int, tokens: int) -> str:
    """What the working step's tool returns: different for each step, about so many tokens."""
    rng = random.Random(step)
    return f"entry {step}: " + " ".join(rng.choices(_WORDS, k=tokens))


def _fact(number: int, place: str) -> Fact:
    rng = random.Random(f"fact {number}")
    return Fact(f"{rng.choice(_WORDS)}-{number}", f"v{rng.randrange(10**9):09}", place)


def _call(tool: str, **arguments: Any) -> Said:
    return Said(calls=((tool, arguments),))


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "\n".join(part.get("text", "") for part in content)
    calls = message.get("tool_calls") or ()
    return "\n".join([content, *(str(call["function"]["arguments"]) for call in calls)])
