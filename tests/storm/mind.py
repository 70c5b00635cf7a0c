"""The storm's mind: what the model answers is read from the request alone, so that it is the same whenever it is asked.

It also bears witness: of how often each step was asked for, and of which comments it was shown.
"""

from __future__ import annotations

import random
import re
import threading
from collections import Counter, defaultdict
from typing import Any

from tests.storm.recipes import PIECE_NAME, Recipe, part_of, task_in, told_in
from tests.strict_endpoint import Call, ChatRequest, Reply

STEP = re.compile(r"\bstep (work|check)\.(\d+)\b")
COMMENT = re.compile(r"\bcmt-[0-9a-f]{12}\b")
FINAL = "left behind by"
_MOVEMENT = re.compile(r"^Movement: (\w+)$", re.MULTILINE)
_DONE = "{token} is done up to step {movement}.{number}"
_UNREAD = re.compile(r"Not shown in full: \d+ unread \(([\d, ]+)")
LONG_WORDS = 170  # of a file that a long job writes in a step


class Mind:
    """Callable as the endpoint's mind, on its thread; what it witnessed may be read from any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: dict[str, Counter[str]] = defaultdict(Counter)  # job → step → times asked
        self._shown: dict[str, set[str]] = defaultdict(set)  # job → comments that it was shown
        self._twice: dict[str, set[str]] = defaultdict(set)  # job → comments twice in one conversation

    def __call__(self, request: ChatRequest) -> Reply:
        job_id, kind = request.label.split("/")[:2]
        if kind == "compaction":
            return Reply(_summary(request))
        if kind == "final":
            return Reply(f"Summary {FINAL} {task_in(_text(request.messages[1])).token}: all was counted.")
        step, reply = answer(request)
        self._witness(job_id, step, request)
        return reply

    def asked(self, job_id: str) -> Counter[str]:
        with self._lock:
            return Counter(self._asked.get(job_id, Counter()))

    def shown(self, job_id: str) -> set[str]:
        with self._lock:
            return set(self._shown.get(job_id, ()))

    def shown_twice(self, job_id: str) -> set[str]:
        with self._lock:
            return set(self._twice.get(job_id, ()))

    def forget(self, job_id: str) -> None:
        with self._lock:
            for witnessed in (self._asked, self._shown, self._twice):
                witnessed.pop(job_id, None)

    def _witness(self, job_id: str, step: str, request: ChatRequest) -> None:
        read = _called("read_comments", request.messages)  # what a call asked for is shown again on demand
        turns = [message for message in request.messages[2:] if message.get("tool_call_id") not in read]
        counted = Counter(token for message in turns for token in _comments(message))
        everywhere = {token for message in request.messages[1:] for token in _comments(message)}
        with self._lock:
            self._asked[job_id][step] += 1
            self._shown[job_id] |= everywhere
            self._twice[job_id] |= {token for token, times in counted.items() if times > 1}


def answer(request: ChatRequest) -> tuple[str, Reply]:
    """The name of the step that this request asks for, and the reply."""
    messages = request.messages
    head = _text(messages[1])
    recipe = told_in(head)
    movement = _MOVEMENT.findall(_text(messages[0]))[0]
    number = 1 + max(_steps_done(messages, recipe, movement), default=0)
    step = f"{movement}.{number}"
    calls = _calls(recipe, movement, number, messages)
    return step, Reply(text=f"step {step}", calls=tuple(calls))


def _steps_done(messages: list[dict[str, Any]], recipe: Recipe, movement: str) -> list[int]:
    told = [_text(message) for message in messages[2:] if message["role"] == "assistant"]
    done = [int(number) for text in told for name, number in STEP.findall(text)[:1] if name == movement]
    summarised = re.escape(_DONE.format(token=recipe.token, movement=movement, number=0))[:-1] + r"(\d+)"
    return done + [int(number) for number in re.findall(summarised, _text(messages[1]))]


def _calls(recipe: Recipe, movement: str, number: int, messages: list[dict[str, Any]]) -> list[Call]:
    if unread := _announced(messages):
        return [Call("read_comments", {"first": unread[0], "last": unread[-1]})]
    steps = recipe.work if movement == "work" else recipe.check
    if movement == "work" and recipe.children and number > 1 and not _called("spawn_subtask", messages):
        return _spawn(recipe, number)
    if number <= steps:
        return _work(recipe, movement, number)
    results = [_text(message) for message in messages[2:] if message["role"] == "tool"]
    if movement == "work" and recipe.children and not _any_begins(results, "All subtasks have ended"):
        return [_transition("WAIT_SUBTASKS", "waiting for the parts")]
    if movement == "work" and recipe.check:
        return [_transition("check", "worked")]
    if movement == "check" and recipe.ask and not any(" answers: " in text for text in results):
        return [_transition("ASK", f"Shall {recipe.token} be accepted?")]
    return [_transition("COMPLETE", f"result of {recipe.token}")]


def _work(recipe: Recipe, movement: str, number: int) -> list[Call]:
    """What is called in a step: by chance, but always the same in the same step of the same job."""
    chance = random.Random(f"{recipe.token}/{movement}/{number}")
    step = f"{movement}.{number}"
    count, mark = Call("count", {"step": step}), Call("mark", {"step": step})
    if movement == "check":
        return chance.choice([[count], [mark], [mark, count]])
    if recipe.long:
        text = f"{step} " + "word " * LONG_WORDS
        return [
            chance.choice([count, mark]),
            Call("Write", {"path": f"output/{number}.txt", "content": text}),
        ]
    todos = [{"id": "1", "content": f"finish {recipe.token}", "status": "in_progress"}]
    return chance.choice(
        [
            [count],
            [mark],
            [count, mark, Call("Write", {"path": "output/report.txt", "content": step})],
            [mark, Call("todo_write", {"todos": todos})],
            [Call("Bash", {"command": f"echo {step} >> output/effects.txt"}), mark],
            [Call("plan", {"plan_type": "step", "plan_content": f"{recipe.token} {step}"})],
            [] if number % 2 else [count],  # words alone: a nudge follows
        ]
    )


def _spawn(recipe: Recipe, number: int) -> list[Call]:
    """All subtasks in one batch, between an effect that may be repeated and one that may not."""
    parts = [part_of(recipe, part) for part in range(1, recipe.children + 1)]
    spawned = [
        Call("spawn_subtask", {"instruction": part.instruction(), "piece": PIECE_NAME}) for part in parts
    ]
    step = {"step": f"work.{number}"}
    return [Call("count", step), *spawned, Call("mark", step)]


def _transition(next_step: str, summary: str) -> Call:
    return Call("transition", {"next_step": next_step, "summary": summary})


def _announced(messages: list[dict[str, Any]]) -> list[int]:
    """Numbers of comments that were only announced, in the head or since the last reply, and not read yet."""
    last = max((n for n, message in enumerate(messages) if message["role"] == "assistant"), default=0)
    fresh = [*messages[last + 1 :], *(messages[1:2] if not last else ())]
    listed = [numbers for message in fresh for numbers in _UNREAD.findall(_text(message))]
    return sorted({int(number) for number in re.findall(r"\d+", " ".join(listed))})


def _summary(request: ChatRequest) -> str:
    """A summary of a conversation says how far it went; the task in it tells of whom."""
    told = _text(request.messages[1])
    steps = STEP.findall(told)
    movement = steps[-1][0]
    number = max(int(number) for name, number in steps if name == movement)
    return _DONE.format(token=task_in(told).token, movement=movement, number=number) + "."


def _called(name: str, messages: list[dict[str, Any]]) -> set[str]:
    """The ids of the calls of this tool."""
    return {
        call["id"]
        for message in messages
        for call in message.get("tool_calls") or ()
        if call["function"]["name"] == name
    }


def _comments(message: dict[str, Any]) -> list[str]:
    return COMMENT.findall(_text(message)) if message["role"] in ("user", "tool") else []


def _any_begins(texts: list[str], beginning: str) -> bool:
    return any(text.startswith(beginning) for text in texts)


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)
