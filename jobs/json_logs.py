"""Logs for programs: one JSON object a line, with the job and the run that a record is about."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType

from storage.masking import mask

_about: ContextVar[Mapping[str, str]] = ContextVar("sostenuto_log_about", default=MappingProxyType({}))


@contextmanager
def logging_about(**ids: str) -> Iterator[None]:
    """Records that this thread writes inside the block say what they are about, such as `job` and `run`."""
    token = _about.set({**_about.get(), **ids})
    try:
        yield
    finally:
        _about.reset(token)


class JsonFormatter(logging.Formatter):
    """A record as one line of ASCII: its text can forge no other record and steer no terminal. Secrets are masked."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_about.get(),
            "process": record.process,
            "thread": record.threadName,
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return mask(
            json.dumps({name: mask(text) if isinstance(text, str) else text for name, text in told.items()})
        )
