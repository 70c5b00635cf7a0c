"""What Glob and Grep share: which files below a folder are looked at, and the page of results."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pathspec import GitIgnoreSpec

from jobs.resolver import open_beneath, open_regular
from jobs.workspace import Entry, walk
from storage.errors import SostenutoError
from worker.cancel import CancelToken
from worker.tools.page import Page
from worker.tools.patterns import Pattern, glob_expression

MOST_WALKED = 200_000
_IGNORE_FILE = ".gitignore"
_LARGEST_IGNORE_FILE = 64 << 10
_MOST_RULES = 1000

IGNORED_PARAMETER = {
    "type": "boolean",
    "description": "also look at what .gitignore files leave out (default: false)",
}
OFFSET_PARAMETER = {"type": "integer", "minimum": 0, "description": "number of first results to skip"}


@dataclass(slots=True)
class Search:
    """One search of a folder, or of one file. Left out: what git keeps in `.git`, and what `.gitignore` files in the
    workspace leave out, unless the folder itself is such a one or `ignored` asks for it."""

    root_fd: int
    path: str
    cancel: CancelToken
    wanted: Pattern | None
    ignored: bool = False
    git: bool = False
    left_out: int = 0
    """files and folders passed over because of a .gitignore; a folder counts once"""
    complete: bool = True
    _rules: dict[str, GitIgnoreSpec] = field(default_factory=dict)

    def entries(self) -> Iterator[Entry]:
        """The entries that fit, in the order of their paths, up to MOST_WALKED looked at; links are not followed.

        Raises Cancelled between two entries; NotFound or FileRejected for the folder itself.
        """
        if not self.ignored:
            self._read_rules_above()
        for count, entry in enumerate(walk(self.root_fd, self.path, self._enters)):
            self.cancel.raise_if_cancelled()
            if count >= MOST_WALKED:
                self.complete = False
                return
            if entry.kind == "folder" or (_is_git(entry.path) and not self.git):
                continue
            below = entry.path[len(self.path) :].lstrip("/")
            if self.wanted is not None and not self.wanted.fullmatch(below.encode("utf-8", "replace")):
                continue
            if self._is_ignored(entry.path):
                self.left_out += 1
                continue
            yield entry

    def files(self) -> Iterator[str]:
        """The paths of the regular files among them; `path` itself if it is no folder."""
        fd = open_beneath(self.root_fd, self.path, os.O_RDONLY)
        try:
            is_folder = stat.S_ISDIR(os.fstat(fd).st_mode)
        finally:
            os.close(fd)
        if not is_folder:
            yield self.path
            return
        for entry in self.entries():
            if entry.kind == "file":
                yield entry.path

    def notes(self) -> list[str]:
        """What the model must know about what was not looked at."""
        notes = []
        if self.left_out:
            notes.append(f"[{self.left_out} left out by .gitignore; ignored=true looks there too]")
        if not self.complete:
            notes.append(f"[only the first {MOST_WALKED} entries were looked at; name a folder with path]")
        return notes

    def _enters(self, folder: Entry) -> bool:
        if _is_git(folder.path):
            return self.git
        if self._is_ignored(folder.path + "/"):
            self.left_out += 1
            return False
        if not self.ignored:
            self._read_rules(folder.path)
        return True

    def _is_ignored(self, path: str) -> bool:
        """As git decides: the deepest folder whose rules say anything, and there the last rule that fits."""
        if not self._rules or self.ignored:
            return False
        parts = path.rstrip("/").split("/")
        for depth in range(len(parts) - 1, -1, -1):
            folder = "/".join(parts[:depth])
            rules = self._rules.get(folder)
            if rules is not None:
                include = rules.check_file(path[len(folder) :].lstrip("/")).include
                if include is not None:
                    return include
        return False

    def _read_rules_above(self) -> None:
        """The rules of the folders down to the one searched; none of them if they leave that one out."""
        parts = self.path.split("/") if self.path else []
        for depth in range(len(parts) + 1):
            folder = "/".join(parts[:depth])
            if depth and self._is_ignored(folder + "/"):
                self._rules.clear()
            self._read_rules(folder)

    def _read_rules(self, folder: str) -> None:
        with contextlib.suppress(SostenutoError):
            with open_regular(self.root_fd, f"{folder}/{_IGNORE_FILE}".lstrip("/")) as file:
                text = file.read(_LARGEST_IGNORE_FILE).decode("utf-8", "replace")
            self._rules[folder] = _rules_of(text.splitlines()[:_MOST_RULES])


def _is_git(path: str) -> bool:
    return ".git" in path.split("/")


def _rules_of(lines: list[str]) -> GitIgnoreSpec:
    """The rules that can be understood; matched by RE2, since a hostile one must not take long."""
    understood = []
    for line in lines:
        with contextlib.suppress(ValueError, re.error):
            GitIgnoreSpec.from_lines([line], backend="re2")
            understood.append(line)
    return GitIgnoreSpec.from_lines(understood, backend="re2")


def file_filter(pattern: str) -> Pattern:
    """A glob over paths relative to the folder searched. Raises BadPattern."""
    pattern = pattern.removeprefix("/workspace/").removeprefix("./")
    return glob_expression(pattern if "/" in pattern else f"**/{pattern}")


def page_of(arguments: dict[str, Any], budget: int) -> Page:
    """The page of results that a call asks for."""
    return Page(budget, arguments.get("offset", 0))


def with_notes(found: str, notes: list[str]) -> str:
    """The results, and below them a line for each note."""
    return "\n".join([found.removesuffix("\n"), *notes]) if notes else found
