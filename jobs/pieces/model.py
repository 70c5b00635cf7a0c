"""What a piece is. The checks across movements are in `jobs.pieces.checks`, reading YAML in `jobs.pieces.loader`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from jobs.documents import model_problems
from jobs.durations import parse_duration
from jobs.errors import InvalidPiece

COMPLETE = "COMPLETE"
ASK = "ASK"
ABORT = "ABORT"
WAIT_SUBTASKS = "WAIT_SUBTASKS"
ENDINGS = (COMPLETE, ASK, ABORT, WAIT_SUBTASKS)

_FORMAT = 1  # of the frozen form

PieceName = Annotated[str, Field(pattern=r"^[a-z0-9-]+$", max_length=64)]
MovementName = Annotated[str, Field(pattern=r"^[a-z0-9_-]+$", max_length=64)]
Next = Annotated[
    str, Field(min_length=1, max_length=64)
]  # that it leads somewhere is checked across movements
Line = Annotated[str, Field(min_length=1, max_length=500)]
Prompt = Annotated[str, Field(min_length=1, max_length=50_000)]


def _seconds(value: Any) -> Any:
    return parse_duration(value) if isinstance(value, str) else value


Span = Annotated[
    float,
    BeforeValidator(_seconds, json_schema_input_type=float | str),
    Field(gt=0, le=366 * 86_400, allow_inf_nan=False),
]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Triggers(_Part):
    """When a job that names no piece gets this one."""

    keywords: list[Line] = Field(
        min_length=1, max_length=100, description="words of an instruction that choose it"
    )


class Rule(_Part):
    """One way out of a movement."""

    condition: Line = Field(description="when the agent should take it, in words")
    next: Next = Field(description="a movement's name, or COMPLETE, ASK, ABORT, WAIT_SUBTASKS")


class Ask(_Part):
    """How this movement asks a person."""

    resume: Literal["continue", "rebuild"] = Field(
        default="continue",
        description="continue: the whole conversation; rebuild: a fresh one with the answer",
    )
    deadline: Span | None = Field(default=None, description="how long to wait: seconds, or 30m, 2h, 7d")
    default_answer: Prompt | None = Field(default=None, description="the answer when the deadline passes")

    @model_validator(mode="after")
    def _both_or_none(self) -> Ask:
        if (self.deadline is None) != (self.default_answer is None):
            raise ValueError("a deadline and a default_answer go together")
        return self


class Movement(_Part):
    """One stage: its persona, instruction and tools, and where it can go next."""

    name: MovementName
    edit: bool = Field(default=False, description="may use the tools that write files")
    persona: Prompt = Field(description="who the agent is, in the system prompt")
    instruction: Prompt = Field(description="what to do in this movement")
    allowed_tools: list[Line] = Field(max_length=100, description="names or globs, such as mcp__*")
    rules: list[Rule] = Field(default=[], max_length=50)
    allowed_commands: list[Line] | None = Field(
        default=None, max_length=200, description="the only commands Bash may run, as globs; default: any"
    )
    default_next: Next | None = Field(default=None, description="where a movement that must end goes")
    max_consecutive_revisits: int = Field(default=3, ge=1, le=100, description="visits of it in a row")
    models: list[Line] | None = Field(
        default=None, min_length=1, max_length=10, description="in order of preference"
    )
    ask: Ask = Ask()
    verify: MovementName | None = Field(
        default=None, description="this movement checks; its findings are given to the movement named here"
    )
    output_contract: Prompt | None = Field(
        default=None, description="what the result must be, told to the agent"
    )

    @property
    def next_steps(self) -> tuple[str, ...]:
        """Where the rules and default_next lead, each once, in the order written."""
        written = [rule.next for rule in self.rules] + ([self.default_next] if self.default_next else [])
        return tuple(dict.fromkeys(written))


class Piece(_Part):
    """A workflow: movements, and the rules that lead from one to the next."""

    name: PieceName
    description: Line
    max_movements: int = Field(default=30, ge=1, le=1000, description="visits of movements in one job")
    initial_movement: MovementName
    movements: list[Movement] = Field(min_length=1, max_length=50)
    triggers: Triggers | None = None
    models: list[Line] | None = Field(
        default=None, min_length=1, max_length=10, description="in order of preference"
    )
    required_mcp: list[Line] = Field(
        default=[], max_length=20, description="MCP servers it cannot work without"
    )

    def movement(self, name: str) -> Movement:
        """The movement of this name. Raises KeyError: a checked piece names no other."""
        for movement in self.movements:
            if movement.name == name:
                return movement
        raise KeyError(name)


def freeze(piece: Piece) -> dict[str, Any]:
    """Plain JSON data to store with a job: every default written out, so that later defaults change nothing."""
    return {"format": _FORMAT, **piece.model_dump(mode="json")}


def thaw(frozen: dict[str, Any]) -> Piece:
    """The piece a job was submitted with. Raises InvalidPiece for data that `freeze` of this version did not make."""
    data = dict(frozen)
    if data.pop("format", None) != _FORMAT:
        raise InvalidPiece("written by another version of Sostenuto", file="the job's piece")
    try:
        return Piece.model_validate(data)
    except ValidationError as error:
        _, problem = next(model_problems(Piece, error))
        raise InvalidPiece(problem, file="the job's piece") from None


def piece_schema() -> dict[str, Any]:
    """The JSON Schema of a piece's YAML, for editors; published as docs/piece.schema.json."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Piece.model_json_schema()}
