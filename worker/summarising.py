"""From transcript rows to a summary, through a model: for compactions and for a job's final summary.

    rows → plain text → chunks that fit the model's window → one call a chunk, each with the summary so far → summary

What fails is tried again with less: after an overflow, an empty answer or a tool call the next request is smaller
than the one before. The summary has a fixed cap, so that it never grows from round to round.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from jobs.errors import ConfigurationError
from storage.records import Message, Paid, RunRef
from worker.cancel import CancelToken
from worker.fallback import model_answered, pick, set_aside
from worker.flattening import Entry, flatten, shortened
from worker.job_run import UNKNOWN_WINDOW
from worker.language import is_japanese
from worker.model.errors import ModelError, ModelErrorKind
from worker.model.types import ModelReply, ModelRequest
from worker.prices import cost_at
from worker.reminders import neutral
from worker.tokens import estimate_tokens
from worker.tools.text import prefix_that_fits

if TYPE_CHECKING:
    from worker.process import WorkerProcess

LARGEST_WINDOW = 200_000  # a summary of more at once is no better, and dearer
FIRST_SHARE = 0.85  # of the window that a request may fill: estimates err
NEXT_SHARE = 0.6  # of the last one, after a failed attempt
MOST_FAILURES = 6  # in a row: by then a request is below a twentieth of the window
SUMMARY_SHARE = 8  # a summary takes at most this part of the window
LEAST_SUMMARY, MOST_SUMMARY = 150, 4_000  # tokens
ECHO_SHARE = 0.8  # of a conversation: a summary that is longer is none
LEAST_ROOM = 60  # tokens for the conversation in a request: with less there is nothing to summarise
TASK_SHARE = 8

_PROMPTS = Path(__file__).parent / "summary_prompts"
_THOUGHTS = re.compile(r"\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_CALL_AS_TEXT = re.compile(r"\s*<\|?(?:tool_call|function_call|tool_calls)\b")
_CUT = "\n[… the summary was cut here …]"


class Purpose(StrEnum):
    """What the summary is for; each has its prompts."""

    COMPACTION = "compaction"
    FINAL = "final"


@dataclass(slots=True)
class Spend:
    """What the calls for a summary took together."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    calls: int = 0

    def add(self, paid: Paid) -> None:
        self.prompt_tokens += paid.prompt_tokens
        self.completion_tokens += paid.completion_tokens
        self.cost += paid.cost or 0.0


@dataclass(frozen=True, slots=True)
class SummaryOrder:
    """What is to be summarised for whom. `models` are asked as `worker.fallback` has it; `label` begins with the job's
    id. `pay` hears at once what each call took: whatever becomes of the summary, that was paid."""

    purpose: Purpose
    task: str
    models: Sequence[str]
    label: str
    previous: str | None = None  # the summary so far: it is carried on
    most_tokens: int | None = None  # of the summary; default: an eighth of the window, at most 4,000
    run: RunRef | None = None  # whose calls they are, for the limits of endpoints
    pay: Callable[[Paid], None] | None = None
    failures: int = 0  # calls in a row that failed in earlier runs


@dataclass(frozen=True, slots=True)
class Summary:
    """`tokens` is estimated, and at most the order's cap. `covered` counts the entries that went in."""

    text: str
    tokens: int
    covered: int
    model: str | None


def summarise(
    process: WorkerProcess, cancel: CancelToken, rows: Iterable[Message], order: SummaryOrder, spend: Spend
) -> Summary:
    """The summary of `rows`, and of `order.previous`, in the language of the task. Every row went into a request.

    Rows with nothing to tell need no call: the previous summary is returned. `spend` tells of every call that was
    made, also where this raises: ModelError when a failure is to be waited out, no model is left or nothing smaller can
    be asked; Cancelled; ConfigurationError for a model or a prompt file that cannot be used; what `order.pay` raises.
    """
    writer = _Writer(process, cancel, order, spend)
    queue = _Queue(flatten(rows))
    summary, covered = order.previous, 0
    while (part := queue.take(writer.room(summary))) is not None:
        written = writer.write(part, summary)
        if written is None:
            queue.put_back(part)
            continue
        summary, covered = written, covered + len(part)
    return Summary(summary or "", estimate_tokens(summary or ""), covered, writer.model if covered else None)


class _Queue:
    """The entries that no summary holds yet."""

    def __init__(self, entries: Iterator[Entry]) -> None:
        self._entries = entries
        self._first: deque[Entry] = deque()

    def take(self, room: int) -> list[Entry] | None:
        """The next entries, as many as fit into `room` tokens, at least one; None where there are none left."""
        taken: list[Entry] = []
        left = room
        while (entry := self._next()) is not None:
            cost = estimate_tokens(entry.within(room).text) + 1
            if taken and cost > left:
                self._first.appendleft(entry)
                break
            taken.append(entry)
            left -= cost
        return taken or None

    def put_back(self, entries: Sequence[Entry]) -> None:
        self._first.extendleft(reversed(entries))

    def _next(self) -> Entry | None:
        return self._first.popleft() if self._first else next(self._entries, None)


class _Writer:
    """Writes one summary: which model is asked, and how much it is given at once."""

    def __init__(
        self, process: WorkerProcess, cancel: CancelToken, order: SummaryOrder, spend: Spend
    ) -> None:
        self._process = process
        self._cancel = cancel
        self._order = order
        self._spend = spend
        self._models = list(order.models)
        self.model = pick(process, self._models)
        self._share = FIRST_SHARE
        self._failures = 0
        self._window = min(LARGEST_WINDOW, *(window_of(process, model) for model in order.models))
        self._most = min(order.most_tokens or usual_cap(self._window), MOST_SUMMARY)
        self._japanese = is_japanese(order.task)

    def room(self, summary: str | None) -> int:
        """Tokens for the conversation in the next request. Raises ModelError where that is too little to go on."""
        room = self._room(summary)
        if room < LEAST_ROOM:
            raise ModelError(
                ModelErrorKind.OVERFLOW,
                f"no summary fits the window of {self._window} tokens",
                hint="choose a model with a larger window",
            )
        return room

    def _room(self, summary: str | None) -> int:
        return int(self._window * self._share) - self._output() - estimate_tokens(self._frame(summary))

    def write(self, part: Sequence[Entry], summary: str | None) -> str | None:
        """The summary with `part` in it; None after a failed attempt: try again with less."""
        room = self.room(summary)
        conversation = "\n\n".join(entry.within(room).text for entry in part)
        prompt = self._prompt()
        told = self._told(conversation, summary)
        request = ModelRequest(
            model=self.model,
            messages=[{"role": "system", "content": prompt}, {"role": "user", "content": told}],
            tools=[],
            max_output_tokens=self._output(),
            label=f"{self._order.label}.{self._spend.calls}",
            expected_tokens=estimate_tokens(prompt + told),
        )
        try:
            reply = self._ask(request)
            text = _text_of(reply)
            self._refuse_echo(text, conversation)
        except ModelError as error:
            self._after_failure(error, summary)
            return None
        self._failures = 0
        model_answered(self._process, self.model)
        return self._capped(text)

    def _ask(self, request: ModelRequest) -> ModelReply:
        self._spend.calls += 1
        reply = self._process.ask(request, self._cancel, self._order.run)
        prompt = reply.usage.prompt_tokens or request.expected_tokens
        completion = reply.usage.completion_tokens or estimate_tokens(reply.content or "")
        price = self._process.profile(request.model).price
        paid = Paid(prompt, completion, cost_at(price, prompt, completion, reply.usage.cached_tokens))
        self._spend.add(paid)
        if self._order.pay is not None:
            self._order.pay(paid)
        return reply

    def _after_failure(self, error: ModelError, summary: str | None) -> None:
        """Less the next time, or another model; raises the error where there is neither, or it may pass soon."""
        self._failures += 1
        if _less_may_help(error) and self._failures <= MOST_FAILURES:
            self._share *= NEXT_SHARE
            if self._room(summary) >= LEAST_ROOM:
                return
        if isinstance(error, NoSummary) or error.kind is ModelErrorKind.OVERFLOW:
            # It answers, only not with a summary of this: no reason for other jobs to leave it alone.
            self._models.remove(self.model)
            if not self._models:
                raise error
        elif not set_aside(
            self._process, self.model, self._models, error, self._order.failures + self._failures
        ):
            raise error
        self.model = pick(self._process, self._models)
        self._failures = 0
        self._share = FIRST_SHARE

    def _output(self) -> int:
        """The longest answer: the summary, and as much again for models that think first."""
        most = min(self._most * 4, int(self._window * self._share) // 4)
        return min(most, self._process.settings.max_output_tokens or most)

    def _prompt(self) -> str:
        return summary_prompt(
            self._process.settings.prompts_dir,
            self._order.purpose,
            japanese=self._japanese,
            tokens=self._most * 3 // 4,
        )

    def _frame(self, summary: str | None) -> str:
        return self._prompt() + self._told("", summary)

    def _told(self, conversation: str, summary: str | None) -> str:
        task = shortened(self._order.task, max(int(self._window * self._share) // TASK_SHARE, LEAST_ROOM))
        parts = [f"<task>\n{neutral(task)}\n</task>"]
        if summary:
            parts.append(f"<summary_so_far>\n{neutral(summary)}\n</summary_so_far>")
        parts.append(f"<conversation>\n{conversation}\n</conversation>")
        parts.append("要約を書いてください。" if self._japanese else "Now write the summary.")
        return "\n\n".join(parts)

    def _refuse_echo(self, text: str, conversation: str) -> None:
        """What is about as long as the conversation summarises nothing; cut at the cap, it would only lose its end."""
        given = estimate_tokens(conversation)
        if given > 2 * self._most and estimate_tokens(text) > given * ECHO_SHARE:
            raise NoSummary(ModelErrorKind.BAD_REQUEST, "the summary is as long as what it was to summarise")

    def _capped(self, text: str) -> str:
        if estimate_tokens(text) <= self._most:
            return text
        return text[: prefix_that_fits(text, self._most - estimate_tokens(_CUT))] + _CUT


class NoSummary(ModelError):
    """The model answered, and not with a summary."""


def _less_may_help(error: ModelError) -> bool:
    """The model could not take so much, or made no summary of it. A reply that broke off on its way says neither."""
    unfit = isinstance(error, NoSummary) and error.kind is ModelErrorKind.INTERRUPTED
    return unfit or error.kind is ModelErrorKind.OVERFLOW


def _text_of(reply: ModelReply) -> str:
    """The summary in a reply. Raises NoSummary where there is none: the attempt failed."""
    if reply.refusal or reply.finish_reason == "content_filter":
        raise NoSummary(ModelErrorKind.BAD_REQUEST, "the model refused to write a summary")
    text = _THOUGHTS.sub("", reply.content or "", count=1).strip()
    if reply.tool_calls or _CALL_AS_TEXT.match(text):
        raise NoSummary(ModelErrorKind.INTERRUPTED, "the model called a tool instead of writing a summary")
    if not text:
        raise NoSummary(ModelErrorKind.INTERRUPTED, "the model's summary was empty")
    return text


def usual_cap(window: int) -> int:
    """Tokens of a summary for an agent with this window, where nothing else is ordered."""
    return min(max(window // SUMMARY_SHARE, LEAST_SUMMARY), MOST_SUMMARY)


def window_of(process: WorkerProcess, model: str) -> int:
    """The window of a model in tokens, as far as it is known."""
    return process.profile(model).window or UNKNOWN_WINDOW


def summary_prompt(folder: Path | None, purpose: Purpose, *, japanese: bool, tokens: int) -> str:
    """The prompt of a kind of summary: the operator's file in `folder`, where there is one, else ours.

    Looked for as `compaction.ja.md` (`.en.md`), then `compaction.md`. Raises ConfigurationError for one that cannot be
    read. `$tokens` stands for the summary's cap.
    """
    language = "ja" if japanese else "en"
    names = (f"{purpose}.{language}.md", f"{purpose}.md")
    for file in [*(folder / name for name in names if folder), _PROMPTS / names[0]]:
        try:
            return Template(file.read_text("utf-8")).safe_substitute(tokens=tokens)
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"the prompt {file} cannot be read: {error}") from None
    raise ConfigurationError(f"the prompt {names[0]} is missing", hint="install Sostenuto anew")
