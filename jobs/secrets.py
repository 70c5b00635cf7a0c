"""Masking of configured secrets: their exact values, and the forms in which text carries them on."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

MASK = "***"
SHORTEST = 4  # characters: masking a shorter value would only garble text


class Redactor:
    """Masks the given values wherever they stand: as they are, in JSON, URL-quoted, or within base64."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if len(secret) >= SHORTEST for form in _forms(secret)}
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def text(self, text: str) -> str:
        """The text with every secret masked."""
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def holds_secret(self, text: str) -> bool:
        """Does a secret stand in it?"""
        return self._pattern is not None and self._pattern.search(text) is not None


def _forms(secret: str) -> Iterable[str]:
    yield secret
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield json.dumps(secret)[1:-1]
    yield quote(secret, safe="")
    yield quote_plus(secret)
    yield quote(secret, safe="").lower()
    data = secret.encode("utf-8", "replace")
    # In base64 a value looks different by where it begins in its group of three bytes; what its neighbours change
    # at both ends is left out.
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + data).decode()
        begin = -(-shift * 4 // 3) if shift else 0
        end = (shift + len(data)) * 4 // 3
        inner = encoded[begin:end]
        if len(inner) >= SHORTEST * 2:
            yield inner
            yield inner.replace("+", "-").replace("/", "_")
