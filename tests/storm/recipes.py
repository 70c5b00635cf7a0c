"""What the storm's jobs are to do: told in their instruction, carried out by the storm's mind."""

from __future__ import annotations

import json
import random
import re
from dataclasses import asdict, dataclass

PIECE_NAME = "storm"
PIECE = """
name: storm
description: Two movements with every kind of commit in them.
initial_movement: work
movements:
  - name: work
    edit: true
    persona: Works.
    instruction: Do the work.
    allowed_tools: ["count", "mark", "Bash", "Write", "Read", "todo_write", "plan", "spawn_subtask"]
    rules:
      - {condition: done, next: check}
      - {condition: nothing to check, next: COMPLETE}
      - {condition: there are parts, next: WAIT_SUBTASKS}
  - name: check
    persona: Checks.
    instruction: Check the work.
    allowed_tools: ["count", "mark", "Read"]
    rules: [{condition: unsure, next: ASK}, {condition: all is well, next: COMPLETE}]
"""
_TOLD = re.compile(r"^STORM (\{.*\})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Recipe:
    """One job. `token` is its own word, by which its effects, summaries and comments are told from all others'."""

    token: str
    work: int = 3  # steps of the movement work
    check: int = 0  # steps of the movement check; 0: the movement is left out
    ask: bool = False
    children: int = 0
    long: bool = False  # fills its context

    def instruction(self) -> str:
        return f"Do what the next line says.\nSTORM {json.dumps(asdict(self))}"


def told_in(text: str) -> Recipe:
    """The last recipe in the text: the task stands last in a head."""
    return Recipe(**json.loads(_TOLD.findall(text)[-1]))


def task_in(text: str) -> Recipe:
    """The first one: of whom a request for a summary tells."""
    return Recipe(**json.loads(_TOLD.findall(text)[0]))


def draw(chance: random.Random) -> Recipe:
    """A job of one of the kinds."""
    token = f"t{chance.getrandbits(48):012x}"
    match chance.choices(("plain", "asking", "family", "long"), (4, 3, 2, 2))[0]:
        case "asking":
            return Recipe(token, work=chance.randint(2, 4), check=chance.randint(1, 3), ask=True)
        case "family":
            return Recipe(token, work=chance.randint(3, 4), check=1, children=chance.randint(1, 3))
        case "long":
            return Recipe(token, work=chance.randint(18, 26), check=1, long=True)
    return Recipe(token, work=chance.randint(3, 7), check=chance.randint(1, 4))


def part_of(parent: Recipe, number: int) -> Recipe:
    """The recipe of a subtask."""
    return Recipe(f"{parent.token}p{number}", work=2 + number % 2)
