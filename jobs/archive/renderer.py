"""The messages that the model of a job would be sent now, for `current.jsonl`.

Workers make requests, so a program of theirs makes them here, too: started once for many jobs, when the first one needs it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from types import TracebackType
from typing import IO, Any, Self

from jobs.errors import SostenutoError
from storage.records import Message


class Renderer:
    """Use it as a context manager: its process ends with the block."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the block's end

    def __call__(self, rows: Sequence[Message], trim_seq: int) -> list[dict[str, Any]]:
        """The messages of the next request, from the rows of the job's present view. Raises SostenutoError."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        question = {"rows": [asdict(row) for row in rows], "trim_seq": trim_seq}
        try:
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
        except (OSError, ValueError):
            self._errors.seek(0)
            last = self._errors.read().decode(errors="replace").strip().rpartition("\n")[2]
            raise SostenutoError(f"the present context cannot be made: {last}") from None
        if "error" in answer:
            raise SostenutoError(f"the present context cannot be made: {answer['error']}")
        messages: list[dict[str, Any]] = answer["messages"]
        return messages

    def _start(self) -> subprocess.Popen[str]:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "worker.context_view"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
        )
        return self._process

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
        self._errors.close()
