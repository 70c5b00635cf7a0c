"""The `mcp:` block: servers whose tools the agents may use. Only the operator's settings name servers, never a workspace."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9]|[_-](?!_)){0,31}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")

Text = Annotated[str, Field(max_length=4000, pattern=r"^[^\x00\r\n]*$")]
Timeout = Annotated[float, Field(ge=0.05, le=3600)]


class McpServer(BaseModel):
    """One server: a `command` that speaks MCP on its input and output, or the `url` of one that speaks it over HTTP."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: Annotated[str, Field(min_length=1, max_length=4000)] | None = Field(
        default=None, description="program to run in the sandbox: a name on its PATH, or an absolute path"
    )
    args: tuple[Text, ...] = Field(default=(), description="its arguments")
    env: dict[str, Text] = Field(
        default={}, description="its variables; ${NAME} is taken from the worker's environment"
    )
    read: tuple[Path, ...] = Field(
        default=(), description="folders it may read beside the toolchain and the job's workspace"
    )
    url: Annotated[str, Field(max_length=4000)] | None = Field(default=None, description="http(s)://…")
    headers: dict[str, Text] = Field(
        default={}, description="sent with each request; ${NAME} is taken from the worker's environment"
    )
    start_timeout: Timeout = Field(default=15, description="seconds until it must have told its tools")
    call_timeout: Timeout = Field(default=60, description="seconds a call may take")

    @model_validator(mode="after")
    def _one_kind(self) -> McpServer:
        if (self.command is None) == (self.url is None):
            raise ValueError("a server has either a command or a url")
        if self.url is not None:
            self._check_url(self.url)
        elif self.headers:
            raise ValueError("headers belong to a server with a url")
        if self.command is not None and "/" in self.command and not Path(self.command).is_absolute():
            raise ValueError("command: allowed is a program's name or an absolute path")
        if bad := [name for name in self.env if not _VARIABLE.fullmatch(name)]:
            raise ValueError(f"env: {bad[0]!r} is no name of a variable")
        if bad := [name for name in self.headers if not _HEADER.fullmatch(name)]:
            raise ValueError(f"headers: {bad[0]!r} is no name of a header")
        if bad_folder := next((folder for folder in self.read if not _may_be_shown(folder)), None):
            raise ValueError(f"read: {str(bad_folder)!r} is not an absolute path of a folder to be shown")
        return self

    def _check_url(self, url: str) -> None:
        if self.args or self.env or self.read:
            raise ValueError("args, env and read belong to a server with a command")
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("url: allowed is a URL with a host, such as https://HOST/mcp")
        if parts.username or parts.password:
            raise ValueError("url: credentials belong into headers, as ${NAME} of a variable")

    def variables(self) -> set[str]:
        """The names of the environment's variables that it refers to."""
        values = (*self.env.values(), *self.headers.values())
        return {name for value in values for name in _REFERENCE.findall(value)}


def _may_be_shown(folder: Path) -> bool:
    system = ("/proc", "/sys", "/dev", "/run")
    return (
        folder.is_absolute()
        and ".." not in folder.parts
        and folder != Path("/")
        and not any(folder.is_relative_to(place) for place in system)
    )


def fill_in(values: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The values with their ${NAME} replaced. Raises KeyError with the name of a variable that is not set."""
    return {name: _REFERENCE.sub(lambda found: environ[found[1]], value) for name, value in values.items()}


def referenced_secrets(servers: Iterable[McpServer], environ: Mapping[str, str]) -> set[str]:
    """What the servers take from the environment: it is taken for secret."""
    names = {name for server in servers for name in server.variables()}
    return {environ[name] for name in names if environ.get(name)}


def _from_json(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError('allowed is JSON such as {"docs": {"url": "https://HOST/mcp"}}') from None


def _named(servers: dict[str, McpServer]) -> dict[str, McpServer]:
    for name in servers:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{name[:40]!r} cannot be a server's name; allowed is a text of 1 to 32 a-z, 0-9, - and _ (no two together)"
            )
    return servers


McpServers = Annotated[
    dict[str, McpServer], BeforeValidator(_from_json), AfterValidator(_named), Field(max_length=50)
]
