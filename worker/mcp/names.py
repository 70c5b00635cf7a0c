"""What a server's tools are called here, and what of their schemas is passed on."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from storage.text import clean_json

PREFIX = "mcp__"
LONGEST_NAME = 64
LONGEST_SCHEMA = 16_000  # characters of JSON
_ANYTHING = {"type": "object", "additionalProperties": True}
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_REGEXES = ("pattern", "patternProperties")


def tool_names(server: str, raw: Iterable[str]) -> dict[str, str]:
    """Each tool's own name and its name here: `mcp__SERVER__TOOL`, letters, digits, _ and -, at most 64 characters.

    Names that would be cut, or fall together with another's, end in a hash of the tool's own name: so they are the same
    in every worker and at every start, whatever order the server tells them in.
    """
    raw = list(dict.fromkeys(raw))
    plain = {name: f"{PREFIX}{server}__{_UNSAFE.sub('_', name)}" for name in raw}
    counted = Counter(plain.values())
    return {
        name: full if counted[full] == 1 and len(full) <= LONGEST_NAME else _hashed(full, name)
        for name, full in plain.items()
    }


def _hashed(full: str, raw: str) -> str:
    mark = hashlib.sha256(raw.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{full[: LONGEST_NAME - len(mark) - 1]}_{mark}"


def usable_schema(schema: Any) -> dict[str, Any]:
    """The schema as it is passed on, or one that takes any object where it is none, too long, or refers elsewhere.

    Regular expressions are left out: they would run here, over what a model wrote, and the server checks them itself.
    """
    if not isinstance(schema, dict):
        return dict(_ANYTHING)
    try:
        cleaned: dict[str, Any] = _without_regexes(clean_json(schema)) | {"type": "object"}
        if len(json.dumps(cleaned)) > LONGEST_SCHEMA or _refers_elsewhere(cleaned):
            return dict(_ANYTHING)
        Draft202012Validator.check_schema(cleaned)
    except (SchemaError, RecursionError, ValueError, TypeError):
        return dict(_ANYTHING)
    return cleaned


def _without_regexes(value: Any, *, names: bool = False) -> Any:
    """`names`: the keys are names that the server chose, such as those of properties, and not keywords."""
    if isinstance(value, list):
        return [_without_regexes(item) for item in value]
    if not isinstance(value, dict):
        return value
    named = ("properties", "$defs", "definitions", "dependentSchemas")
    return {
        key: _without_regexes(item, names=not names and key in named)
        for key, item in value.items()
        if names or key not in _REGEXES
    }


def _refers_elsewhere(value: Any) -> bool:
    """Whether the schema would have to be fetched, or could run in circles."""
    if isinstance(value, list):
        return any(map(_refers_elsewhere, value))
    if not isinstance(value, dict):
        return False
    if "$id" in value or "$dynamicRef" in value or "$recursiveRef" in value:
        return True
    reference = value.get("$ref")
    if isinstance(reference, str) and not reference.startswith("#/"):
        return True
    return any(map(_refers_elsewhere, value.values()))
