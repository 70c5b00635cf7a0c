"""Logs that hostile text cannot use: no secret, no terminal escape, no forged record."""

from __future__ import annotations

import logging

from jobs.json_logs import JsonFormatter
from jobs.plain_text import visible
from storage.masking import MaskingFormatter

_CONTINUED = "\n    "


class PlainFormatter(MaskingFormatter):
    """What another formatter makes of a record, its traceback included, masked and with control characters made
    visible. All lines of a record but its first are indented, so that none can pass for a record of its own."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record)).replace("\n", _CONTINUED)


def plain_logs(*, as_json: bool = False) -> None:
    """Every handler that any logger has now writes so, or as JSON; for those added later, call it again."""
    loggers = [logging.getLogger(), *map(logging.getLogger, list(logging.root.manager.loggerDict))]
    for handler in {handler for logger in loggers for handler in logger.handlers}:
        inner = handler.formatter or logging.Formatter()
        if as_json:
            handler.setFormatter(JsonFormatter())
        elif not isinstance(inner, PlainFormatter | JsonFormatter):
            handler.setFormatter(PlainFormatter(inner))
