"""The settings of models and their endpoints: which there are, what they can do, what they may be asked.

No key stands here: an endpoint names the environment variable that holds its key. Addresses come from these settings
only; jobs and pieces choose among them by a model's name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from jobs.secret_files import Variables

Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
Amount = Annotated[float, Field(ge=0, le=1e9)]
VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200)]
EndpointName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=100)]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$", max_length=100)]
ModelName = Annotated[str, Field(min_length=1, max_length=500)]

# A variable that a header's value is taken from: what is secret in it stays out of the file.
FROM_ENVIRONMENT = "env:"


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Price(_Group):
    """What a model's tokens cost, for a million of each kind, in whatever currency one counts."""

    input: Amount = Field(description="tokens of the prompt")
    output: Amount = Field(description="tokens of the reply")
    cached_input: Amount | None = Field(
        default=None, description="tokens of the prompt that the endpoint had cached; default: as input"
    )


class LimitSettings(_Group):
    """What all workers together may ask; a job that finds the limit reached waits in the queue."""

    concurrency: Count | None = Field(default=None, description="calls at the same time")
    requests_per_minute: Count | None = Field(default=None, description="calls begun in a minute")
    tokens_per_minute: Count | None = Field(default=None, description="tokens of prompts and replies")

    def __bool__(self) -> bool:
        return any((self.concurrency, self.requests_per_minute, self.tokens_per_minute))


class EndpointSettings(_Group):
    """A server that answers Chat Completions."""

    base_url: str = Field(description="such as https://HOST/v1; for Azure the resource's address")
    api_key_env: VariableName | None = Field(default=None, description="the variable that holds the key")
    dialect: Literal["openai", "azure"] = Field(
        default="openai", description="azure: the key in the header api-key"
    )
    api_version: Annotated[str, Field(min_length=1, max_length=50)] | None = Field(
        default=None, description="azure only: asks /openai/deployments/MODEL with this api-version"
    )
    headers: dict[HeaderName, str] = Field(
        default={}, description="sent with each request; a value env:NAME is taken from that variable"
    )
    limits: LimitSettings = LimitSettings()

    @field_validator("base_url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("allowed is a URL with a host, such as https://HOST/v1")
        if parts.password:
            raise ValueError("a password must not stand in the file; use api_key_env or headers")
        return value

    def key(self, environ: Mapping[str, str] | None = None) -> str:
        """The key itself; empty where none is named or set."""
        environ = Variables(environ)
        return environ.get(self.api_key_env, "").strip() if self.api_key_env else ""

    def sent_headers(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """The headers as they are sent, variables filled in."""
        environ = Variables(environ)
        return {
            name: environ.get(value.removeprefix(FROM_ENVIRONMENT), "").strip()
            if value.startswith(FROM_ENVIRONMENT)
            else value
            for name, value in self.headers.items()
        }

    def secrets(self) -> list[str]:
        """What must be masked: the key, and header values that come from variables."""
        sent = self.sent_headers()
        hidden = [sent[name] for name, value in self.headers.items() if value.startswith(FROM_ENVIRONMENT)]
        return [value for value in (self.key(), *hidden) if value]


class ModelSettings(_Group):
    """What is known of the models whose names fit a glob; what is left out is learned or built in."""

    endpoint: EndpointName | None = Field(default=None, description="where it is; default: OPENAI_BASE_URL")
    name: ModelName | None = Field(default=None, description="what the endpoint calls it; default: the same")
    window: Count | None = Field(default=None, description="its context window in tokens")
    max_output_tokens: Count | None = Field(default=None, description="its longest reply in tokens")
    vision: bool | None = Field(default=None, description="takes images")
    reasoning: Literal["drop", "tool_calls", "all"] | None = Field(
        default=None, description="which of its messages get their reasoning fields back"
    )
    user_after_tool: bool | None = Field(default=None, description="takes a user message after a tool's")
    system_role: bool | None = Field(default=None, description="takes a system message")
    parallel_tool_calls: bool | None = Field(default=None, description="takes several calls in one message")
    id_format: Literal["openai", "mistral"] | None = Field(
        default=None, description="mistral: call ids of 9 letters and digits"
    )
    parameters: dict[str, Any] = Field(
        default={}, description="further members of each request, such as temperature"
    )
    price: Price | None = Field(default=None, description="as in prices, and before it")
    limits: LimitSettings = LimitSettings()

    @field_validator("parameters")
    @classmethod
    def _check_parameters(cls, value: dict[str, Any]) -> dict[str, Any]:
        if owned := sorted(value.keys() & {"model", "messages", "tools", "stream", "stream_options", "n"}):
            raise ValueError(f"{', '.join(owned)}: set by Sostenuto itself, not allowed here")
        return value


def from_json(value: Any) -> Any:
    """In the environment the same mapping is written as JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError("allowed is JSON, the same mapping as in the file") from None


Endpoints = Annotated[dict[EndpointName, EndpointSettings], BeforeValidator(from_json)]
Models = Annotated[dict[ModelName, ModelSettings], BeforeValidator(from_json)]


def entry_for(models: Mapping[str, ModelSettings], model: str) -> ModelSettings:
    """The first entry whose glob fits the model's name; an empty one where none does."""
    return next((entry for glob, entry in models.items() if fnmatchcase(model, glob)), ModelSettings())
