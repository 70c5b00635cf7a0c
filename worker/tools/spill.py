"""Results that do not fit their budget, kept whole in a file of the workspace that the model can read."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from typing import Any

from worker.keeping import keep_file
from worker.tools.base import ToolContext

log = logging.getLogger(__name__)

MOST_SPILLED = 8 << 20  # bytes of a command's output
_IN_MEMORY = 1 << 18


def spill(text: str, context: ToolContext) -> str | None:
    """Writes a result into the workspace; returns its path there, None where it cannot be written."""
    path = f"logs/results/{context.call_id}.txt"
    return path if keep_file(context.workspace, context.job_id, path, text) else None


class Spool:
    """What a command printed, its first MOST_SPILLED bytes, outside of memory where it is much.

    Never fails: where nothing can be kept, `content` is None.
    """

    def __init__(self) -> None:
        self._file: Any = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115  closed by close()
        self._size = 0
        self._broken = False

    @property
    def is_whole(self) -> bool:
        return self._size < MOST_SPILLED

    def feed(self, data: bytes) -> None:
        """Take what was printed next."""
        self._try(lambda: self._file.write(data[: MOST_SPILLED - self._size]))
        self._size = min(self._size + len(data), MOST_SPILLED)

    def content(self) -> bytes | None:
        """All that was kept."""
        self._try(lambda: self._file.seek(0))
        found: bytes | None = self._try(self._file.read)
        return found

    def close(self) -> None:
        self._file.close()

    def _try(self, act: Callable[[], Any]) -> Any:
        if self._broken:
            return None
        try:
            return act()
        except OSError as error:  # no room for temporary files
            log.warning("a command's output is not kept whole: %s", error)
            self._broken = True
            return None
