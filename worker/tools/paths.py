"""Paths as a model writes them, and the workspace as tools open it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from jobs.errors import FileRejected
from jobs.resolver import open_workspace, shorten, split_path
from worker.tools.base import ToolContext

SANDBOX_ROOT = "/workspace"


def relative_path(context: ToolContext, path: str) -> str:
    """The path relative to the workspace, normalised; '' for the workspace itself.

    Commands see their workspace under an absolute path, so a model gives such paths to the file tools too: that prefix
    is taken off. Any other absolute path is refused with the rest (see jobs.resolver.split_path).
    """
    for root in (SANDBOX_ROOT, str(context.workspace)):
        if path == root:
            return ""
        if path.startswith(root + "/"):
            return "/".join(split_path(path[len(root) :].lstrip("/")))
    return "/".join(split_path(path))


def writable_path(context: ToolContext, path: str) -> str:
    """Like `relative_path`, for a file to be written: not below `logs/`, which belongs to the system."""
    relative = relative_path(context, path)
    if not relative:
        raise FileRejected(f"{shorten(path)} is the workspace itself, not a file")
    if relative.split("/", 1)[0] == "logs":
        raise FileRejected(f"{shorten(path)}: logs/ is read-only", hint="write below output/")
    return relative


@contextlib.contextmanager
def opened_workspace(context: ToolContext) -> Iterator[int]:
    """A descriptor of the workspace folder."""
    root_fd = open_workspace(context.workspace)
    try:
        yield root_fd
    finally:
        os.close(root_fd)
