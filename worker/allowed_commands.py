"""A movement's `allowed_commands`: which commands its Bash may run. What is not provably allowed is refused.

A command may be made of several, joined by `;`, `&&`, `||`, `|`, `&` and line ends; the program of each must fit one of
the globs. Whatever could start another program, or hide which one is started, is refused as such: substitutions,
`${…}`, subshells, groups, functions, keywords such as `if` and `for`, here-documents, assignments, and a program's name
that is quoted or expanded. A name with a slash fits only globs with one, and never through `..`; shell builtins that run
or redefine commands must be named exactly. The one glob `*` allows everything.

This narrows what an agent does, it holds nobody in: an allowed program may start others (`find -exec`, `make`). What
holds is the sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from jobs.plain_text import one_line
from worker.tools.base import CrashPolicy, Tool, ToolContext, ToolResult

_PROGRAM = re.compile(r"\[|[A-Za-z0-9_.,/+:@-]+")
_KEYWORDS = re.compile(
    "if|then|elif|else|fi|for|in|do|done|while|until|case|esac|select|function|time|coproc"
)
_NAMED_ONLY = re.compile(
    r"\.|source|eval|exec|command|builtin|trap|alias|unalias|enable|hash|export|declare|typeset|readonly|local|set"
    "|shopt|bind|complete|compgen|compopt|mapfile|readarray|fc|jobs|let"
)
_FIXED_PATH = "readonly PATH; "  # so that no allowed builtin can make a name mean another program


class _Unclear(Exception):
    """What a command does cannot be told from its text; the message says what stands in the way."""


@dataclass(frozen=True, slots=True)
class LimitedBash:
    """Bash where a movement names the commands it may run."""

    bash: Tool
    commands: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.bash.name

    @property
    def description(self) -> str:
        return (
            f"{self.bash.description} Only these programs may be run: {self._listed}. Join commands with ; && || or |; "
            "no substitution, no ${…}, no here-document, no assignment, no if, for or while."
        )

    @property
    def parameters(self) -> dict[str, Any]:
        return self.bash.parameters

    @property
    def crash(self) -> CrashPolicy:
        return self.bash.crash

    @property
    def edits(self) -> bool:
        return self.bash.edits

    def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        command = arguments["command"]
        if (problem := refusal(command, self.commands)) is not None:
            told = f"Error: {self.name} was not run: {problem}. Allowed programs: {self._listed}"
            return ToolResult(told, is_error=True)
        return self.bash.run(context, {**arguments, "command": f"{_FIXED_PATH}{command}"})

    @property
    def _listed(self) -> str:
        return ", ".join(self.commands) or "none"


def refusal(command: str, globs: Sequence[str]) -> str | None:
    """Why `command` may not be run where only programs that fit `globs` may; None: it may."""
    if "*" in globs:
        return None
    try:
        for program in _programs(command):
            if not any(_fits(program, glob) for glob in globs):
                return f"{one_line(program, 100)} is not allowed in this movement"
    except _Unclear as unclear:
        return f"{unclear} cannot be used where only some commands are allowed"
    return None


def _fits(program: str, glob: str) -> bool:
    parts = program.split("/")
    if ".." in parts:
        return False
    by_glob = not _NAMED_ONLY.fullmatch(program) and (len(parts) == 1 or "/" in glob)
    return program == glob or (by_glob and fnmatchcase(program, glob))


def _programs(command: str) -> Iterator[str]:
    """The program of each simple command. Raises _Unclear where the shell might do more than is plain to see."""
    for words in _simple_commands(command):
        program = words[0]
        if program is None:
            raise _Unclear("a quoted or expanded program name")
        if "=" in program:
            raise _Unclear("an assignment")
        if _KEYWORDS.fullmatch(program) or not _PROGRAM.fullmatch(program):
            raise _Unclear(f"`{one_line(program, 40)}`")
        yield program


def _simple_commands(command: str) -> Iterator[list[str | None]]:
    """The words of each simple command without its redirections; None for a word that is not plain text."""
    words: list[str | None] = []
    scanner = _Scanner(command)
    while (token := scanner.next()) is not None:
        if token is _END:
            if words:
                yield words
            words = []
        else:
            words.append(token.text)
    if words:
        yield words


@dataclass(frozen=True, slots=True)
class _Token:
    text: str | None


_END = _Token(None)


class _Scanner:
    """Cuts a command into words and ends of simple commands, as bash would, or refuses."""

    def __init__(self, command: str) -> None:
        self._text = command
        self._at = 0

    def next(self) -> _Token | None:
        """The next word or _END; None at the end of the text. Redirections are passed over with their targets."""
        while True:
            self._skip_blanks()
            char = self._peek()
            if not char:
                return None
            if char in "<>" or (char == "&" and self._peek(1) == ">"):
                self._redirection()
            elif char in "\n;&|":
                self._at += 1
                return _END
            else:
                word = self._word()
                if word.text is None or not word.text.isdecimal() or self._peek() not in ("<", ">"):
                    return word  # else the number of a redirected stream

    def _peek(self, ahead: int = 0) -> str:
        return self._text[self._at + ahead : self._at + ahead + 1]

    def _skip_blanks(self) -> None:
        while (char := self._peek()) and (char in " \t" or (char == "\\" and self._peek(1) == "\n")):
            self._at += 1 if char in " \t" else 2
        if char == "#":
            end = self._text.find("\n", self._at)
            self._at = len(self._text) if end < 0 else end

    def _redirection(self) -> None:
        operator = re.compile(r"&>>?|<<<|<<-?|[<>]&|<>|>\||>>|[<>]").match(self._text, self._at)
        assert operator is not None
        if operator[0] in ("<<", "<<-"):
            raise _Unclear("a here-document")
        self._at = operator.end()
        self._skip_blanks()
        if not self._peek() or self._peek() in "\n;&|<>":
            raise _Unclear("a redirection without a target")
        self._word()

    def _word(self) -> _Token:
        plain: list[str] | None = []
        while (char := self._peek()) and char not in " \t\n;&|<>":
            if char in "()`":
                raise _Unclear("a subshell, function or substitution")
            if char in "'\"\\$":
                plain = None
                self._quoted(char)
            else:
                if plain is not None:
                    plain.append(char)
                self._at += 1
        return _Token(None if plain is None else "".join(plain))

    def _quoted(self, char: str) -> None:
        if char == "'":
            end = self._text.find("'", self._at + 1)
            if end < 0:
                raise _Unclear("an open quote")
            self._at = end + 1
        elif char == "\\":
            if not self._peek(1):
                raise _Unclear("a backslash at the end")
            self._at += 2
        elif char == "$":
            if (follower := self._peek(1)) and follower in "({['\"":
                raise _Unclear(f"`${follower}`")
            self._at += 1
        else:
            self._double_quoted()

    def _double_quoted(self) -> None:
        self._at += 1
        while (char := self._peek()) != '"':
            if not char:
                raise _Unclear("an open quote")
            if char == "`":
                raise _Unclear("a subshell, function or substitution")
            if char == "$" and (follower := self._peek(1)) and follower in "({[":
                raise _Unclear(f"`${follower}`")
            self._at += 2 if char == "\\" else 1
        self._at += 1
