"""Names and schemas: what a server says of its tools, and what a model and this process get of it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from worker.mcp.names import LONGEST_SCHEMA, tool_names, usable_schema

ANYTHING = {"type": "object", "additionalProperties": True}


def test_a_plain_name_keeps_its_look() -> None:
    assert tool_names("docs", ["search"]) == {"search": "mcp__docs__search"}


def test_every_name_is_one_that_providers_take_and_no_two_are_equal() -> None:
    raw = ["a.b", "a b", "a/b", "ü", "x" * 200, "x" * 201, "", "検索", "\ud83d", "a__b"]
    names = tool_names("s" * 32, raw)
    assert sorted(names) == sorted(raw)
    assert len(set(names.values())) == len(raw)
    assert all(
        re.fullmatch(r"mcp__s{32}__[A-Za-z0-9_-]*", name) and len(name) <= 64 for name in names.values()
    )


def test_names_do_not_hang_on_the_order_of_the_list() -> None:
    raw = ["a.b", "a b", "z"]
    assert tool_names("s", raw) == tool_names("s", raw[::-1])


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        "object",
        {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1/schema"}}},
        {"type": "object", "properties": {"a": {"$ref": "other.json#/a"}}},
        {"type": "object", "$id": "http://127.0.0.1/", "properties": {"a": {"$ref": "#/b"}}},
        {"type": "object", "properties": {"a": {"type": "nonsense"}}},
        {"type": "object", "description": "x" * LONGEST_SCHEMA},
    ],
)
def test_a_schema_that_cannot_be_used_takes_any_object(schema: Any) -> None:
    assert usable_schema(schema) == ANYTHING


def test_a_schema_is_passed_on_without_its_regular_expressions() -> None:
    given = {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "pattern": "(a+)+$", "maxLength": 5},
            "many": {"type": "array", "items": {"type": "string", "pattern": "x"}},
        },
        "patternProperties": {"^x": {}},
        "required": ["pattern"],
    }
    assert usable_schema(given) == {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "maxLength": 5},
            "many": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["pattern"],
    }
