"""Patterns from a model, matched in linear time: RE2 for regular expressions, and globs on top of it."""

from __future__ import annotations

from typing import Protocol

import re2

_MEMORY = 8 << 20


class BadPattern(Exception):
    """The pattern cannot be used; the message is for the model."""


class Match(Protocol):
    def start(self) -> int: ...
    def end(self) -> int: ...


class Pattern(Protocol):
    def search(self, text: bytes) -> Match | None: ...
    def fullmatch(self, text: bytes) -> Match | None: ...


def regular_expression(pattern: str, *, ignore_case: bool = False) -> Pattern:
    """A compiled expression over UTF-8 bytes. Raises BadPattern (RE2 has no look-around and no back-references)."""
    options = re2.Options()
    options.case_sensitive = not ignore_case
    options.log_errors = False
    options.max_mem = _MEMORY
    try:
        compiled: Pattern = re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        told = error.args[0]
        reason = told.decode("utf-8", "replace") if isinstance(told, bytes) else "it is not valid text"
        raise BadPattern(f"the pattern is no RE2 expression: {reason}") from None
    return compiled


def glob_expression(pattern: str) -> Pattern:
    """A compiled glob over a whole path: `*` and `?` within a name, `**` across folders, `[a-z]`, `{a,b}`."""
    return regular_expression(rf"\A(?:{_translate(pattern)})\z")


def _translate(pattern: str) -> str:
    result = []
    depth = at = 0
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if pattern.startswith("**/", at - 1):
            result.append("(?:.*/)?")
            at += 2
        elif pattern.startswith("**", at - 1):
            result.append(".*")
            at += 1
        elif character == "*":
            result.append("[^/]*")
        elif character == "?":
            result.append("[^/]")
        elif character == "[" and "]" in pattern[at + 1 :]:
            end = pattern.index("]", at + 1)
            inside = pattern[at:end].replace("\\", "\\\\").replace("[", "\\[")
            result.append("[" + ("^" + inside[1:] if inside[0] in "!^" else inside) + "]")
            at = end + 1
        elif character == "{" and "}" in pattern[at:]:
            depth += 1
            result.append("(?:")
        elif character == "}" and depth:
            depth -= 1
            result.append(")")
        elif character == "," and depth:
            result.append("|")
        else:
            result.append(re2.escape(character))
    return "(?s)" + "".join(result) + ")" * depth
