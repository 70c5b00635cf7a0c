"""What a script's templates see of a request, and the sandboxed templates themselves."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError, Undefined, UndefinedError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from worker.model.errors import one_line

_MOVEMENT = re.compile(r"^Movement: *(\S.*?) *$", re.MULTILINE)
# In the first user message, after a compaction: see worker.layout.
_SUMMARISED = re.compile(
    r"^(?:This summary stands for .* for|この要約は.*あなたの返答) (\d+) (?:replies|件)", re.MULTILINE
)
_WHOLE_EXPRESSION = re.compile(r"\{\{((?:(?!\{\{|\}\}).)*)\}\}", re.DOTALL)


class TemplateProblem(Exception):
    """A template failed on this request: a name it does not know, a text that is no JSON, and the like."""


class Conversation:
    """A request as templates see it: its public names are theirs."""

    def __init__(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> None:
        self._messages = messages
        self._tools = tools

    @cached_property
    def movement(self) -> str | None:
        """The name in the system message's line `Movement: NAME`; None in a request for a summary."""
        system = "\n".join(_text(message) for message in self._messages if message["role"] == "system")
        found = _MOVEMENT.search(system)
        return found[1] if found else None

    @cached_property
    def step(self) -> int:
        """How many replies were given in this movement, those that a summary stands for included: 0 at its start."""
        summarised = _SUMMARISED.search(self.instruction)
        shown: int = sum(message["role"] == "assistant" for message in self._messages)
        return shown + (int(summarised[1]) if summarised else 0)

    @cached_property
    def results(self) -> list[str]:
        """The text of every tool result, in order."""
        return [_text(message) for message in self._messages if message["role"] == "tool"]

    @cached_property
    def last_result(self) -> str:
        return self.results[-1] if self.results else ""

    @cached_property
    def instruction(self) -> str:
        """The first user message: the time, comments and files, then the job's instruction."""
        return next((_text(message) for message in self._messages if message["role"] == "user"), "")

    @cached_property
    def user(self) -> str:
        """What was said to the model since its last reply; at the start, the instruction."""
        said: list[str] = []
        for message in reversed(self._messages):
            if message["role"] == "assistant":
                break
            if message["role"] == "user":
                said.insert(0, _text(message))
        return "\n".join(said)

    @cached_property
    def comments(self) -> list[str]:
        """Every user message after the first: comments, answers, reminders."""
        return [_text(message) for message in self._messages if message["role"] == "user"][1:]

    @cached_property
    def calls(self) -> list[dict[str, Any]]:
        """Every call so far: its `name`, `arguments` (None where they are no JSON object) and `result`."""
        answers = {
            message.get("tool_call_id"): _text(message)
            for message in self._messages
            if message["role"] == "tool"
        }
        return [
            {
                "name": call["function"]["name"],
                "arguments": _object(call["function"]["arguments"]),
                "result": answers.get(call["id"], ""),
            }
            for message in self._messages
            for call in message.get("tool_calls") or ()
        ]

    @cached_property
    def todos(self) -> list[dict[str, Any]]:
        """The list in the last `todo_write` call."""
        written = [
            call["arguments"] for call in self.calls if call["name"] == "todo_write" and call["arguments"]
        ]
        return written[-1].get("todos", []) if written else []

    @cached_property
    def tools(self) -> list[str]:
        """The names of the tools offered."""
        return [tool["function"]["name"] for tool in self._tools]

    @cached_property
    def request_text(self) -> str:
        """Every message's text."""
        return "\n".join(_text(message) for message in self._messages)

    @cached_property
    def names(self) -> dict[str, Any]:
        """The variables of a template."""
        return {name: getattr(self, name) for name in _VARIABLES}


_VARIABLES = [
    name
    for name, value in vars(Conversation).items()
    if isinstance(value, cached_property) and name != "names"
]


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(
            part["text"] for part in content if isinstance(part, dict) and part.get("type") == "text"
        )
    return content if isinstance(content, str) else ""


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _search(text: str, pattern: str) -> str:
    """The pattern's first match in the text, or its first group where it has one; '' without a match."""
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        return ""
    return found[1] or "" if found.re.groups else found[0]


def _find_all(text: str, pattern: str) -> list[Any]:
    return re.findall(pattern, text, re.MULTILINE)


def _rows(text: str) -> list[dict[str, str]]:
    """The rows of a CSV text as mappings from its header's names; rows of another width (a notice, say) are left out."""
    table = list(csv.reader(io.StringIO(text.strip())))
    header = table[0] if table else []
    return [dict(zip(header, row, strict=True)) for row in table[1:] if len(row) == len(header)]


_ENVIRONMENT = ImmutableSandboxedEnvironment(
    undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True
)
_ENVIRONMENT.filters.update(
    search=_search, find_all=_find_all, from_json=json.loads, rows=_rows, lines=str.splitlines
)


@lru_cache(maxsize=1000)
def _template(source: str) -> Template:
    return _ENVIRONMENT.from_string(source)


@lru_cache(maxsize=1000)
def _expression(source: str) -> Callable[..., Any]:
    return _ENVIRONMENT.compile_expression(source, undefined_to_none=False)


def check_template(source: str) -> None:
    """Raises ValueError where the text is no valid template."""
    try:
        _template(source)
    except TemplateSyntaxError as error:
        raise ValueError(f"template: {error.message}") from None


def check_expression(source: str) -> None:
    """Raises ValueError where the text is no valid expression."""
    try:
        _expression(source)
    except TemplateSyntaxError as error:
        raise ValueError(f"expression: {error.message}") from None


def evaluate(source: str, seen: Conversation) -> Any:
    """An expression's value. Raises TemplateProblem."""
    value = _guarded(lambda: _expression(source)(**seen.names))
    if isinstance(value, Undefined):
        raise TemplateProblem(f"{source.strip()!r} is not known here")
    return value


def render(source: str, seen: Conversation, *, keep_type: bool = False) -> Any:
    """The template filled in; raises TemplateProblem.

    With `keep_type`, a text that is one whole `{{ … }}` gives the expression's own value: a number stays a number.
    """
    if "{" not in source:
        return source
    whole = _WHOLE_EXPRESSION.fullmatch(source) if keep_type else None
    if whole:
        return evaluate(whole[1], seen)
    return _guarded(lambda: _template(source).render(seen.names))


def _guarded(call: Callable[[], Any]) -> Any:
    """A template runs the script author's expressions over the agent's data: whatever fails there is their news."""
    try:
        return call()
    except UndefinedError as error:
        raise TemplateProblem(one_line(str(error))) from None
    except (
        TemplateError,
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
        re.error,
    ) as error:
        raise TemplateProblem(f"{type(error).__name__}: {one_line(str(error))}") from None
