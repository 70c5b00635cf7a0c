"""Masking of configured secrets, by their exact values, before anything is stored, logged or shown.

One registry a process, filled when settings are opened. `clean_text` masks whatever is stored, so no door has to think
of it; logs have `MaskingFormatter`, and bytes that come in pieces `StreamMask`. It knows the values themselves, their
base64 and their URL forms; whoever transforms a secret in another way gets it past, so secrets are kept from the agents
in the first place (see the sandbox).
"""

from __future__ import annotations

import base64
import json
import logging
import threading
from collections.abc import Callable, Iterable
from urllib.parse import quote, quote_plus

MASK = "***"
SHORTEST = 8  # a shorter value is a common word sooner than a secret, and would eat ordinary text

_lock = threading.Lock()
_values: frozenset[str] = frozenset()
_forms: tuple[str, ...] = ()
_raw_forms: tuple[bytes, ...] = ()
_longest = 0


def register_secrets(values: Iterable[str]) -> None:
    """From now on these values are masked in this process; none is ever forgotten. Values under 8 characters are not."""
    global _values, _forms, _raw_forms, _longest  # noqa: PLW0603 - one registry a process, read without a lock
    with _lock:
        known = _values | {value for value in values if len(value) >= SHORTEST}
        if known == _values:
            return
        forms = {form for value in known for form in forms_of(value)}
        _values = known
        _forms = tuple(sorted(forms, key=lambda form: (-len(form), form)))
        _raw_forms = tuple(form.encode() for form in _forms)
        _longest = max(map(len, _raw_forms), default=0)


def forms_of(secret: str) -> set[str]:
    """The secret as it is, in JSON and in URLs, and what stands for it in base64 text that it is a part of."""
    raw = secret.encode("utf-8", "surrogatepass")
    written = {secret, quote(raw, safe=""), quote_plus(raw), quote(raw)}
    written |= {json.dumps(secret, ensure_ascii=pure)[1:-1] for pure in (True, False)}
    written |= {_lower_escapes(form) for form in list(written)}
    for before in range(3):  # how many bytes of something else share its first group of three
        encoded = base64.b64encode(b"\0" * before + raw)
        # The characters at both ends also hold bits of the neighbours.
        first = (0, 2, 3)[before]
        last = (before + len(raw)) * 8 // 6
        core = encoded[first:last].decode()
        written |= {core, core.replace("+", "-").replace("/", "_")}
    return {form for form in written if len(form) >= SHORTEST}


def _lower_escapes(text: str) -> str:
    parts = text.split("%")
    return "%".join([parts[0], *(part[:2].lower() + part[2:] for part in parts[1:])])


def mask(text: str) -> str:
    """`text` without registered secrets; the same object where there is none."""
    for form in _forms:
        if form in text:
            text = text.replace(form, MASK)
    return text


def mask_growing(text: str) -> str:
    """`mask` for the beginning of a text that goes on: an end that may be the beginning of a secret is left out."""
    masked = mask(text)
    longest = max(map(len, _forms), default=1)
    for start in range(max(len(masked) - longest + 1, 0), len(masked)):
        end = masked[start:]
        if any(form.startswith(end) for form in _forms):
            return masked[:start]
    return masked


def holds_secret(text: str) -> bool:
    """Does a registered secret stand in it?"""
    return any(form in text for form in _forms)


def mask_bytes(data: bytes) -> bytes:
    """`mask` for bytes."""
    for form in _raw_forms:
        if form in data:
            data = data.replace(form, MASK.encode())
    return data


class StreamMask:
    """Masks bytes that come in pieces, also where a secret is cut in two. Holds back at most one secret's length, and
    only bytes that could begin one."""

    def __init__(self, sink: Callable[[bytes], object]) -> None:
        self._sink = sink
        self._held = b""

    def feed(self, data: bytes) -> None:
        """Take the next piece and pass on what can no longer be part of a secret."""
        if not _raw_forms:
            self._sink(data)
            return
        data = mask_bytes(self._held + data)
        keep = _unfinished(data)
        self._held = data[len(data) - keep :]
        if passed := data[: len(data) - keep]:
            self._sink(passed)

    def end(self) -> None:
        """Pass on what was held back: nothing follows that could complete it."""
        held, self._held = self._held, b""
        if held:
            self._sink(held)


def _unfinished(data: bytes) -> int:
    """The length of the longest end of `data` that is the beginning of a secret."""
    tail = data[-(_longest - 1) :] if _longest > 1 else b""
    for start in range(len(tail)):
        end = tail[start:]
        if any(form.startswith(end) for form in _raw_forms):
            return len(end)
    return 0


class MaskingFormatter(logging.Formatter):
    """What another formatter makes of a record, its traceback included, without registered secrets."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        return mask(self._inner.format(record))


def mask_logs() -> None:
    """Every handler that any logger has now masks what it writes; for those added later, call it again."""
    loggers = [logging.getLogger(), *map(logging.getLogger, logging.root.manager.loggerDict)]
    for handler in {handler for logger in loggers for handler in logger.handlers}:
        inner = handler.formatter or logging.Formatter()
        if not isinstance(inner, MaskingFormatter):
            handler.setFormatter(MaskingFormatter(inner))
