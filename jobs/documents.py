"""YAML documents that people write, checked against a pydantic model; each problem with its line and column.

The text is composed into nodes and turned into plain data here: no tag ever constructs an object, duplicate keys are
refused, and size, nesting and the expansion of aliases are capped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from jobs.errors import did_you_mean, nearest

MAX_BYTES = 256 * 1024
MAX_ALIASES = 100
MAX_NODES = 20_000
MAX_DEPTH = 30

Place = tuple[str | int, ...]
_SUBJECT = re.compile(r"^(Input|String|List) (?=should)")  # of pydantic's sentences; ours name the key
_TAG = "tag:yaml.org,2002:"


class DocumentError(Exception):
    """One problem of a document. `line` and `column` count from 1; None where no place can be named."""

    def __init__(self, problem: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True)
class Document:
    """Plain data, and where each of its keys and items stands."""

    data: Any
    positions: dict[Place, tuple[int, int]]

    def position(self, place: Place) -> tuple[int, int]:
        """Line and column of a place, or of the nearest thing around it that was written."""
        while place and place not in self.positions:
            place = place[:-1]
        return self.positions.get(place, (1, 1))

    def error(self, place: Place, problem: str) -> DocumentError:
        return DocumentError(problem, *self.position(place))


def read_document(path: Path) -> Document:
    """Read and parse a file. Raises DocumentError; OSError where the file cannot be read."""
    with path.open("rb") as stream:
        return parse_document(stream.read(MAX_BYTES + 1))


def parse_document(source: bytes) -> Document:
    """Turn YAML into plain data (dict, list, str, int, float, bool, None). Raises DocumentError."""
    if len(source) > MAX_BYTES:
        raise DocumentError(f"the file is larger than {MAX_BYTES // 1024} kB")
    try:
        text = source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError("the file is not UTF-8", source[: error.start].count(b"\n") + 1) from None
    try:
        root = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(str(error.problem or error.context or "not valid YAML").split())
        raise DocumentError(
            problem, mark.line + 1 if mark else None, mark.column + 1 if mark else None
        ) from None
    except YAMLError as error:
        raise DocumentError(" ".join(str(error).split())[:200]) from None
    except RecursionError:
        raise DocumentError(f"nested deeper than {MAX_DEPTH} levels") from None
    builder = _Builder()
    data = None if root is None else builder.build(root, ())
    return Document(data, builder.positions)


class _Builder:
    """Nodes to plain data. An alias is the same node met again, so it is counted where it is expanded."""

    def __init__(self) -> None:
        self.positions: dict[Place, tuple[int, int]] = {}
        self._seen: set[int] = set()
        self._nodes = 0
        self._aliases = 0

    def build(self, node: Node, place: Place) -> Any:
        self._count(node, place)
        self.positions.setdefault(place, _position(node))
        if isinstance(node, MappingNode):
            return self._mapping(node, place)
        if isinstance(node, SequenceNode):
            return [self.build(item, (*place, index)) for index, item in enumerate(node.value)]
        return _scalar(node)

    def _mapping(self, node: MappingNode, place: Place) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                raise DocumentError("a key must be plain text", *_position(key_node))
            key = str(key_node.value)
            if key in data:
                raise DocumentError(f"the key {key!r} is given twice", *_position(key_node))
            self.positions[(*place, key)] = _position(key_node)
            data[key] = self.build(value_node, (*place, key))
        return data

    def _count(self, node: Node, place: Place) -> None:
        self._nodes += 1
        if id(node) in self._seen:
            self._aliases += 1
        self._seen.add(id(node))
        if self._aliases > MAX_ALIASES:
            raise DocumentError(f"more than {MAX_ALIASES} aliases", *_position(node))
        if self._nodes > MAX_NODES:
            raise DocumentError(f"more than {MAX_NODES} values", *_position(node))
        if len(place) > MAX_DEPTH:
            raise DocumentError(f"nested deeper than {MAX_DEPTH} levels", *_position(node))


def _position(node: Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _scalar(node: Node) -> Any:
    tag, text = str(node.tag), str(node.value)
    match tag.removeprefix(_TAG):
        case "str" | "timestamp":
            return text
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return _integer(node, text)
        case "float":
            return _float(text)
    raise DocumentError(f"the tag {tag!r} is not allowed", *_position(node))


def _integer(node: Node, text: str) -> int:
    digits = text.replace("_", "")
    try:
        return int(digits, 0 if digits.lstrip("+-")[:2].lower() in {"0x", "0o", "0b"} else 10)
    except ValueError:
        raise DocumentError("not a whole number that can be used", *_position(node)) from None


def _float(text: str) -> float:
    number = text.replace("_", "").lower()
    match number.lstrip("+-"):
        case ".inf":
            return -math.inf if number.startswith("-") else math.inf
        case ".nan":
            return math.nan
    return float(number)


def model_problems(model: type[BaseModel], error: ValidationError) -> Iterator[tuple[Place, str]]:
    """Each problem pydantic found: its place in the data, and a sentence for people.

    A key that is missing only because it was misspelt is told once, as the misspelling.
    """
    details = error.errors(include_url=False, include_input=False)
    meant: set[Place] = set()
    for detail in details:
        *above, name = detail["loc"] or ("",)
        if detail["type"] == "extra_forbidden":
            meant |= {(*above, key) for key in nearest(str(name), known_keys(model, tuple(above)))}
    for detail in details:
        place = tuple(detail["loc"])
        if not (detail["type"] == "missing" and place in meant):
            yield place, _sentence(model, place, detail)


def _sentence(model: type[BaseModel], place: Place, detail: ErrorDetails) -> str:
    name = str(place[-1]) if place else "the document"
    match detail["type"]:
        case "extra_forbidden":
            near = did_you_mean(name, known_keys(model, place[:-1]))
            return f"unknown key {name!r}" + (f"; {near}" if near else "")
        case "missing":
            return f"the key {name!r} is missing"
        case "model_type" | "dict_type":
            return f"{_label(place)} should be a mapping with keys"
        case "value_error":
            return str(detail["msg"]).removeprefix("Value error, ")
    message = _SUBJECT.sub("", str(detail["msg"])).partition(" after validation")[0]
    return f"{_label(place)} {message}"


def _label(place: Place) -> str:
    if not place:
        return "the document"
    named = [part for part in place if isinstance(part, str)]
    return (
        f"item {place[-1] + 1} of {named[-1]!r}"
        if isinstance(place[-1], int) and named
        else repr(str(place[-1]))
    )


def known_keys(model: type[BaseModel], place: Place) -> list[str]:
    """The keys allowed at a place of the model's data; empty where it allows none."""
    current: Any = model
    for part in place:
        if isinstance(part, int):
            current = _inner(current, list)
        elif get_origin(current) is dict:  # any key is a name of the writer's own
            current = get_args(current)[1]
        else:
            fields = getattr(_inner(current, BaseModel), "model_fields", {})
            current = fields[part].annotation if part in fields else None
    return list(getattr(_inner(current, BaseModel), "model_fields", {}))


def _inner(annotation: Any, wanted: type) -> Any:
    """The model, or the list's item type, inside an annotation such as `list[X] | None`."""
    if wanted is BaseModel and isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if wanted is list and get_origin(annotation) in {list, tuple}:
        return get_args(annotation)[0]
    candidates = (_inner(part, wanted) for part in get_args(annotation) if part is not type(None))
    return next((found for found in candidates if found is not None), None)
