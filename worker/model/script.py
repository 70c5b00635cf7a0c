"""A script: the YAML that says what the scripted model answers, checked when it is loaded.

Choosing a reply is a pure function of the request. Nothing is counted or remembered here, so a script goes on where it
was after a restart, on another machine, or with two hundred jobs at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from jobs.documents import Document, DocumentError, Place, model_problems, parse_document
from jobs.errors import ConfigurationError
from worker.model.errors import ModelError, ModelErrorKind
from worker.model.script_view import (
    Conversation,
    TemplateProblem,
    check_expression,
    check_template,
    evaluate,
    render,
)

P = ParamSpec("P")
R = TypeVar("R")

OTHER_MOVEMENTS = "*"
_DEFAULT_SUMMARY = "Scripted summary of a conversation of {{ request_text | wordcount }} words."


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """What a script answers to one request, its templates filled in. `error` means that the call fails."""

    text: str | None = None
    calls: tuple[ScriptedCall, ...] = ()
    finish_reason: str | None = None
    refusal: str | None = None
    delay: float = 0.0
    error: ModelError | None = None


def _regex(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return pattern


def _templates(value: Any) -> Any:
    """Check the templates anywhere inside plain data."""
    if isinstance(value, str):
        check_template(value)
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _templates(item)
    return value


def _expression(text: str) -> str:
    check_expression(text)
    return text


Template = Annotated[str, AfterValidator(_templates)]
Arguments = Annotated[dict[str, Any] | str | None, AfterValidator(_templates)]
Regex = Annotated[str, AfterValidator(_regex)]
Delay = Annotated[float, Field(ge=0, le=86_400)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Condition(_Strict):
    """When a reply is given out of turn. All that is named must hold."""

    step: int | None = None
    user_contains: str | None = None
    user_matches: Regex | None = None
    results_contain: str | None = None
    results_match: Regex | None = None
    expression: Annotated[str, AfterValidator(_expression)] | None = None

    def holds(self, seen: Conversation) -> bool:
        results = "\n".join(seen.results)
        return (
            self.step in (None, seen.step)
            and (self.user_contains is None or self.user_contains in seen.user)
            and (self.user_matches is None or bool(re.search(self.user_matches, seen.user)))
            and (self.results_contain is None or self.results_contain in results)
            and (self.results_match is None or bool(re.search(self.results_match, results)))
            and (self.expression is None or bool(evaluate(self.expression, seen)))
        )


class Transition(_Strict):
    next_step: Template
    summary: Template = ""
    lessons: Template | None = None
    choices: list[Template] | None = None


class ScriptError(_Strict):
    kind: ModelErrorKind
    message: str = "the script says so"
    retry_after: Delay | None = None


class Reply(_Strict):
    """One reply of a script: text, calls, a transition, or an error."""

    when: Condition | None = None
    text: Template | None = None
    calls: tuple[dict[str, Arguments], ...] = ()
    transition: Transition | None = None
    error: ScriptError | None = None
    refusal: Template | None = None
    finish_reason: str | None = None
    delay: Delay = 0.0
    repeat: bool = False

    @field_validator("calls")
    @classmethod
    def _one_tool_each(cls, calls: tuple[dict[str, Arguments], ...]) -> tuple[dict[str, Arguments], ...]:
        for call in calls:
            if len(call) != 1:
                raise ValueError(f"each call is one tool with its arguments, not {len(call)}")
        return calls

    @model_validator(mode="after")
    def _says_something(self) -> Reply:
        answers = (self.text, self.calls or None, self.transition, self.refusal)
        if self.error is None and all(part is None for part in answers):
            raise ValueError("a reply needs one of: text, calls, transition, refusal, error")
        if self.error is not None and any(part is not None for part in answers):
            raise ValueError("a reply with an error has nothing else to say")
        if self.when is not None and self.repeat:
            raise ValueError("a reply with `when` is given whenever it holds: `repeat` says nothing there")
        return self

    def fill(self, seen: Conversation) -> ScriptedReply:
        if self.error is not None:
            error = ModelError(self.error.kind, self.error.message, retry_after=self.error.retry_after)
            return ScriptedReply(delay=self.delay, error=error)
        calls = [_call(name, arguments, seen) for call in self.calls for name, arguments in call.items()]
        if self.transition is not None:
            calls.append(_call("transition", self.transition.model_dump(exclude_none=True), seen))
        return ScriptedReply(
            text=None if self.text is None else str(render(self.text, seen)),
            calls=tuple(calls),
            finish_reason=self.finish_reason,
            refusal=None if self.refusal is None else str(render(self.refusal, seen)),
            delay=self.delay,
        )


def _call(name: str, arguments: dict[str, Any] | str | None, seen: Conversation) -> ScriptedCall:
    """Arguments given as text are sent as they are, JSON or not."""
    if isinstance(arguments, str):
        return ScriptedCall(name, str(render(arguments, seen)))
    return ScriptedCall(name, json.dumps(_filled(arguments or {}, seen), ensure_ascii=False))


def _filled(value: Any, seen: Conversation) -> Any:
    if isinstance(value, str):
        return render(value, seen, keep_type=True)
    if isinstance(value, dict):
        return {key: _filled(item, seen) for key, item in value.items()}
    return [_filled(item, seen) for item in value] if isinstance(value, list) else value


class ScriptFile(_Strict):
    movements: Annotated[dict[str, tuple[Reply, ...]], Field(min_length=1)]
    summary: Template = _DEFAULT_SUMMARY

    @field_validator("movements")
    @classmethod
    def _only_the_last_repeats(cls, movements: dict[str, tuple[Reply, ...]]) -> dict[str, tuple[Reply, ...]]:
        for name, replies in movements.items():
            in_turn = [reply for reply in replies if reply.when is None]
            if any(reply.repeat for reply in in_turn[:-1]):
                raise ValueError(f"only the last reply of {name!r} can `repeat`")
        return movements


class Script:
    """A checked script. `answer` is pure and may be called from any thread."""

    def __init__(self, file: ScriptFile, document: Document, name: str) -> None:
        self.name = name
        self._file = file
        self._document = document

    @classmethod
    def load(cls, path: Path) -> Script:
        """Raises ConfigurationError with file, line and column of the first problem."""
        try:
            source = path.read_bytes()
        except OSError as error:
            reason = (error.strerror or "cannot be read").lower()
            raise ConfigurationError(f"the script {path} cannot be used: {reason}") from None
        return cls.parse(source, str(path))

    @classmethod
    def parse(cls, source: bytes | str, name: str = "script") -> Script:
        """A script from its text; errors as from `load`."""
        try:
            document = parse_document(source.encode() if isinstance(source, str) else source)
            return cls(_validated(document), document, name)
        except DocumentError as error:
            place = ":".join(str(part) for part in (name, error.line, error.column) if part is not None)
            raise ConfigurationError(f"{place}: {error.problem}", hint="see docs/scripted-model.md") from None

    def answer(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> ScriptedReply:
        """The reply to a request. Raises ModelError (BAD_REQUEST) where the script has none, or a template fails."""
        seen = Conversation(messages, tools)
        if seen.movement is None:  # a summary is asked for
            return ScriptedReply(text=str(self._placed(("summary",), render, self._file.summary, seen)))
        name = seen.movement if seen.movement in self._file.movements else OTHER_MOVEMENTS
        if name not in self._file.movements:
            raise self._error(("movements",), f"no replies for the movement {seen.movement!r}, and no '*'")
        index, reply = self._choose(name, seen)
        return self._placed(("movements", name, index), reply.fill, seen)

    def _choose(self, name: str, seen: Conversation) -> tuple[int, Reply]:
        """The first reply whose `when` holds; else the one whose turn it is."""
        in_turn: list[tuple[int, Reply]] = []
        for index, reply in enumerate(self._file.movements[name]):
            if reply.when is None:
                in_turn.append((index, reply))
            elif self._placed(("movements", name, index), reply.when.holds, seen):
                return index, reply
        if seen.step < len(in_turn):
            return in_turn[seen.step]
        if in_turn and in_turn[-1][1].repeat:
            return in_turn[-1]
        said = (
            f"the movement {seen.movement!r} has {len(in_turn)} replies, and this is request {seen.step + 1}"
        )
        raise self._error(("movements", name), said)

    def _placed(self, place: Place, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function; a template that fails in it is reported with the reply's line."""
        try:
            return function(*args, **kwargs)
        except TemplateProblem as problem:
            raise self._error(place, str(problem)) from None

    def _error(self, place: Place, problem: str) -> ModelError:
        line, _ = self._document.position(place)
        return ModelError(
            ModelErrorKind.BAD_REQUEST,
            f"{self.name}:{line}: {problem}",
            hint="correct the script, then retry the job",
        )


def _validated(document: Document) -> ScriptFile:
    try:
        return ScriptFile.model_validate(document.data)
    except ValidationError as error:
        place, problem = min(model_problems(ScriptFile, error), key=lambda found: document.position(found[0]))
        raise document.error(place, problem) from None
