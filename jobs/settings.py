"""The settings of one installation: what they are. Where they come from is in `jobs.settings_sources`.

Every field is a key of `sostenuto.yaml` and, in upper case behind `SOSTENUTO_`, an environment variable; the two of
the model's client keep their usual names, OPENAI_API_KEY and OPENAI_BASE_URL.
"""

from __future__ import annotations

import json
from datetime import datetime, tzinfo
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from jobs.errors import did_you_mean
from jobs.mcp_settings import McpServers, referenced_secrets
from jobs.model_settings import Count, Endpoints, ModelName, Models, Price
from jobs.secret_files import Variables

DATABASE_SCHEMES = ("sqlite", "postgresql", "postgresql+psycopg")
BROKER_SCHEMES = ("redis", "rediss", "redis+socket", "amqp", "amqps", "pyamqp")

MEGABYTE = 1024 * 1024

Seconds = Annotated[float, Field(ge=0.05, le=86_400)]


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class CompressionSettings(_Group):
    """When a movement's context is compacted."""

    enabled: bool = Field(
        default=True, description="compact long contexts; off: the movement is wrapped up, then forced on"
    )
    token_threshold: Count | None = Field(
        default=None, description="compact from this many tokens; default 80% of a known window, else 8,000"
    )
    keep_recent: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=10, description="newest messages kept word for word"
    )
    min_to_compress: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=5, description="fewer messages are not worth it"
    )


class InheritanceSettings(_Group):
    """What a new job takes over from an earlier one on the same thing."""

    enabled: bool = Field(default=True, description="begin a job with its predecessor's summary and plans")
    max_summary_tokens: Count = Field(default=4000, description="longest inherited summary, plans included")


class SummarySettings(_Group):
    """What a job leaves to those that follow it."""

    enabled: bool = Field(
        default=True,
        description="summarise each ended job, at its cost; off: followers read its last messages",
    )


class ContextSettings(_Group):
    """The `context:` block."""

    base_dir: Path | None = Field(
        default=None, description="where `export` writes contexts; default: contexts in the data dir"
    )
    compression: CompressionSettings = CompressionSettings()
    final_summary: SummarySettings = SummarySettings()
    inheritance: InheritanceSettings = InheritanceSettings()


class BudgetSettings(_Group):
    """What a job may spend when its submitter names nothing; a used-up budget pauses it."""

    max_steps: Count | None = Field(default=None, description="steps of a job")
    max_tokens: Count | None = Field(default=None, description="tokens of a job")
    max_cost: Annotated[float, Field(gt=0, le=1e9)] | None = Field(default=None, description="cost of a job")
    max_seconds: Annotated[float, Field(gt=0, le=1e9)] | None = Field(
        default=None, description="running time of a job"
    )


def _for_each(value: Any) -> Any:
    """A number is the same limit for each key; in the environment either is written as JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError('allowed is a number, or a mapping such as {"research": 3, "*": 1}') from None
    return {"*": value} if isinstance(value, int | float) and not isinstance(value, bool) else value


Limits = Annotated[dict[ModelName, Count], BeforeValidator(_for_each)]
_EACH = "a number for each, or name or glob → number; the first that fits counts"


class LimitSettings(_Group):
    """The `limits:` block: how many jobs run at once, over all workers, and how many may wait."""

    per_owner: Limits = Field(default={}, description=f"running jobs of an owner: {_EACH}")
    per_user: Limits = Field(
        default={}, description=f"running jobs with the same `user`, of one owner: {_EACH}"
    )
    per_repository: Limits = Field(
        default={}, description=f"running jobs with the same `repository`: {_EACH}"
    )
    per_piece: Limits = Field(default={}, description=f"running jobs of a piece: {_EACH}")
    max_queued: Count | None = Field(default=None, description="waiting jobs; then no more are accepted")
    max_queued_per_owner: Count | None = Field(default=None, description="waiting jobs of one owner")

    def of(self, kind: str, value: str) -> int | None:
        """How many jobs of this owner, user, repository or piece may run; None: no limit."""
        limits: dict[str, int] = getattr(self, f"per_{kind}")
        return next((limit for glob, limit in limits.items() if fnmatchcase(value, glob)), None)

    @property
    def any_running(self) -> bool:
        """Whether the number of running jobs is limited at all."""
        return any((self.per_owner, self.per_user, self.per_repository, self.per_piece))


def _from_json(value: Any) -> Any:
    """In the environment the same mapping is written as JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError('allowed is JSON such as {"gpt-*": {"input": 1.25, "output": 10}}') from None


def _from_list(value: Any) -> Any:
    """In the environment names stand with commas between them."""
    if not isinstance(value, str):
        return value
    return [name.strip() for name in value.split(",") if name.strip()]


ModelNames = Annotated[
    tuple[ModelName, ...],
    BeforeValidator(_from_list),
    AfterValidator(lambda names: tuple(dict.fromkeys(names))),
]


class ExchangeSettings(_Group):
    """The `exchanges:` block: what was sent to models and came back, kept for a while for looking into faults."""

    keep_days: Annotated[float, Field(ge=0, le=3650)] = Field(
        default=3, description="how long requests and responses are kept; 0: not at all"
    )
    max_bytes: Count = Field(default=2 * MEGABYTE, description="of one response that are kept")
    max_job_bytes: Count = Field(
        default=100 * MEGABYTE, description="on disk for one job; then no more is kept"
    )
    max_total_bytes: Annotated[int, Field(ge=1, le=10**15)] = Field(
        default=2048 * MEGABYTE, description="on disk for all jobs; the longest unused go first"
    )


HookNames = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$", max_length=100)], ...],
    BeforeValidator(_from_list),
    AfterValidator(lambda names: tuple(dict.fromkeys(names))),
]


class HookSettings(_Group):
    """The `hooks:` block: programs of yours that are told when a job stops or ends."""

    completion: HookNames = Field(default=(), description="hooks called when a job has ended")
    pause: HookNames = Field(default=(), description="hooks called when a job is paused or asks a person")
    timeout: Seconds = Field(default=30, description="longest call of a hook, in seconds")


class Settings(_Group):
    """Checked, absolute, immutable. `load_settings()` makes it from the environment and `sostenuto.yaml`.

    Built directly, `Settings(data_dir=…)` fills the same defaults and raises pydantic's ValidationError.
    """

    database_url: str = Field(
        default="",
        repr=False,
        description="sqlite:///FILE or postgresql://…; default: sostenuto.db in the data dir",
    )
    broker_url: str | None = Field(
        default=None,
        repr=False,
        description="redis://…, rediss://…, redis+socket://…, amqp://…; default: embedded",
    )
    database_password: SecretStr | None = Field(
        default=None, description="the password of database_url, where none stands in it"
    )
    broker_password: SecretStr | None = Field(
        default=None, description="the password of broker_url, where none stands in it"
    )
    data_dir: Path = Field(
        default=Path("sostenuto-data"), description="database, workspaces, sockets and logs"
    )
    pieces_dir: Path | None = Field(
        default=None, description="your own pieces; default: pieces in the data dir"
    )
    prompts_dir: Path | None = Field(
        default=None, description="your own prompts for summaries; default: prompts in the data dir"
    )
    owner: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        default="local", description="whose jobs the CLI sees"
    )
    time_zone: str | None = Field(
        default=None, description="IANA name shown to the agents; default: this machine's"
    )

    model: Annotated[str, Field(min_length=1, max_length=500)] | None = Field(
        default=None, description="model name, or scripted:PATH for a YAML of replies"
    )
    openai_api_key: SecretStr | None = Field(default=None, description="key of the model's endpoint")
    openai_base_url: str | None = Field(default=None, description="URL of an OpenAI-compatible endpoint")
    model_idle_timeout: Seconds = Field(default=120, description="longest silence of a reply, in seconds")
    model_total_timeout: Seconds = Field(default=900, description="longest whole reply, in seconds")
    max_output_tokens: Count | None = Field(
        default=None, description="longest reply; default: the endpoint's"
    )
    context_window: Count | None = Field(
        default=None, description="the model's window in tokens; default: learned"
    )

    fallback_models: ModelNames = Field(
        default=(), description="asked in this order while a job's own models cannot be"
    )
    endpoints: Endpoints = Field(
        default={}, description="name → a further server, its key's variable, its limits"
    )
    models: Models = Field(
        default={},
        description="model name or glob → its endpoint, window, abilities; the first that fits counts",
    )
    prices: Annotated[dict[str, Price], BeforeValidator(_from_json)] = Field(
        default={}, description="model name or glob → what a million tokens cost; the first that fits counts"
    )

    lease_seconds: Annotated[float, Field(ge=0.2, le=3600)] = Field(
        default=15, description="a run's right to write"
    )
    slice_seconds: Seconds = Field(
        default=60, description="a slice gives way to waiting jobs after this long"
    )
    slice_steps: Count = Field(default=200, description="or after this many steps")
    concurrency: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=50, description="agents in one worker process"
    )
    grace_seconds: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=8, description="time to end steps at a shutdown"
    )
    max_attempts: Annotated[int, Field(ge=1, le=100)] = Field(
        default=5, description="deaths in a row that end a poison job"
    )
    sweep_seconds: Seconds = Field(
        default=1, description="how often expired leases and lost wake-ups are looked for"
    )

    max_subtasks: Annotated[int, Field(ge=0, le=1000)] = Field(
        default=20, description="subtasks that one job may begin"
    )
    max_subtask_depth: Annotated[int, Field(ge=0, le=20)] = Field(
        default=3, description="levels of subtasks below a job; 0: no subtasks at all"
    )

    bash_timeout: Seconds = Field(default=120, description="longest command of an agent, in seconds")
    allow_unsandboxed: bool = Field(
        default=False, description="run commands where no sandbox works: dangerous"
    )
    sandbox_min: Literal["bwrap", "landlock"] | None = Field(
        default=None, description="workers refuse to start below this level"
    )

    max_instruction_chars: Annotated[int, Field(ge=1, le=5_000_000)] = Field(
        default=1_000_000, description="longest instruction of a job"
    )
    max_file_bytes: Count = Field(default=100 * MEGABYTE, description="largest input file")
    max_workspace_bytes: Annotated[int, Field(ge=1, le=10**15)] = Field(
        default=1024 * MEGABYTE, description="largest workspace of a job"
    )
    max_workspace_files: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        default=10_000, description="most files in a workspace"
    )

    flower_password: SecretStr | None = Field(
        default=None,
        description="of Flower's pages, for the name sostenuto; default: one made in the data dir",
    )

    flower_url: Annotated[str, Field(pattern="^https?://[^\\s]+$", max_length=500)] | None = Field(
        default=None, description="where people open Flower; the page of workers links to it"
    )

    traces_endpoint: Annotated[str, Field(pattern=r"^https?://[^\s@]+$", max_length=2000)] | None = Field(
        default=None,
        description="OTLP/HTTP address for traces, http://HOST:4318/v1/traces; default: none are made",
    )
    log_format: Literal["plain", "json"] = Field(
        default="plain", description="of workers and servers: lines for people, or one JSON object a line"
    )

    audit_days: Annotated[float, Field(ge=30, le=36_500)] = Field(
        default=365, description="how long the records of the audit log are kept"
    )

    limits: LimitSettings = LimitSettings()
    budget: BudgetSettings = BudgetSettings()
    context: ContextSettings = ContextSettings()
    hooks: HookSettings = HookSettings()
    exchanges: ExchangeSettings = ExchangeSettings()

    mcp: McpServers = Field(default={}, description="MCP servers whose tools agents may use: name → server")

    @model_validator(mode="before")
    @classmethod
    def _fill_paths(cls, data: Any) -> Any:
        """Defaults that hang on the data folder; every path absolute, so that workers may start elsewhere."""
        if not isinstance(data, dict):
            return data
        filled = {key: value for key, value in data.items() if value is not None}
        data_dir = filled.get("data_dir", "sostenuto-data")
        if not isinstance(data_dir, str | Path):
            return data
        folder = Path(data_dir).expanduser().absolute()
        filled["data_dir"] = folder
        filled["database_url"] = filled.get("database_url") or f"sqlite:///{folder}/sostenuto.db"
        filled.setdefault("pieces_dir", folder / "pieces")
        filled.setdefault("prompts_dir", folder / "prompts")
        return filled

    @field_validator("pieces_dir", "prompts_dir")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        return value and value.expanduser().absolute()

    @field_validator("database_url")
    @classmethod
    def _check_database_url(cls, value: str) -> str:
        return check_database_url(value)

    @field_validator("broker_url")
    @classmethod
    def _check_broker_url(cls, value: str | None) -> str | None:
        if value is not None:
            _split_url(value, BROKER_SCHEMES, "redis://HOST:6379/0")
        return value

    @field_validator("database_password", "broker_password")
    @classmethod
    def _check_password(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        url = str(info.field_name).replace("password", "url")
        if value is not None and url in info.data:  # else the URL itself is refused
            _with_password(info.data[url] or "", value)
        return value

    @model_validator(mode="after")
    def _put_passwords_in(self) -> Settings:
        """From here on there is one way to a server: its URL."""
        for url in ("database_url", "broker_url"):
            password = getattr(self, url.replace("url", "password"))
            if password is not None:
                object.__setattr__(
                    self, url, _with_password(getattr(self, url), password)
                )  # before anyone has it
        return self

    @field_validator("openai_base_url")
    @classmethod
    def _check_base_url(cls, value: str | None) -> str | None:
        if value is not None:
            parts = _split_url(value, ("http", "https"), "https://HOST/v1")
            if not parts.hostname:
                raise ValueError("allowed is a URL with a host, such as https://HOST/v1")
        return value

    @model_validator(mode="after")
    def _check_models(self) -> Settings:
        for glob, entry in self.models.items():
            if entry.endpoint is not None and entry.endpoint not in self.endpoints:
                near = did_you_mean(entry.endpoint, self.endpoints)
                raise ValueError(
                    f"models: {glob}: there is no endpoint {entry.endpoint!r}" + (f"; {near}" if near else "")
                )
        return self

    @field_validator("time_zone")
    @classmethod
    def _check_time_zone(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                ZoneInfo(value)
            except (OSError, ValueError, KeyError):
                raise ValueError("allowed is an IANA name such as Europe/Paris or UTC") from None
        return value

    @property
    def embedded_broker(self) -> bool:
        """True when this installation starts a private broker of its own."""
        return self.broker_url is None

    @property
    def uses_sqlite(self) -> bool:
        return self.database_url.startswith("sqlite")

    @property
    def contexts_dir(self) -> Path:
        """Where `export` writes the context archive."""
        return (self.context.base_dir or self.data_dir / "contexts").expanduser().absolute()

    def zone(self) -> tzinfo:
        """The time zone agents are told; this machine's where none is set."""
        return (
            ZoneInfo(self.time_zone)
            if self.time_zone
            else datetime.now().astimezone().tzinfo or ZoneInfo("UTC")
        )

    def secrets(self) -> list[str]:
        """The exact values that must be masked wherever text is stored or shown; longest first."""
        keys = (self.openai_api_key, self.database_password, self.broker_password, self.flower_password)
        found = {key.get_secret_value() for key in keys if key}
        found |= referenced_secrets(self.mcp.values(), Variables())
        for url in (self.database_url, self.broker_url, self.openai_base_url):
            parts = urlsplit(url or "")
            given = [parts.password or "", *parse_qs(parts.query).get("password", [])]
            found |= {form for password in given for form in (password, unquote(password))}
        for endpoint in self.endpoints.values():
            found |= set(endpoint.secrets())
        return sorted((value for value in found if value), key=lambda value: (-len(value), value))


def check_database_url(value: str) -> str:
    """The URL in the one form the engine takes. Raises ValueError saying what is allowed; shows no password."""
    parts = _split_url(
        value.replace("postgres://", "postgresql://", 1), DATABASE_SCHEMES, "postgresql://HOST/NAME"
    )
    if parts.scheme != "sqlite":
        return parts.geturl()
    file = value.removeprefix("sqlite://").removeprefix("/")
    if not file or file.startswith(":memory:") or "mode=memory" in file:
        raise ValueError("allowed is sqlite:///FILE; a database in memory cannot be shared by processes")
    if not value.startswith("sqlite:///"):
        raise ValueError("allowed is sqlite:///FILE, with three slashes (four for an absolute path)")
    return f"sqlite:///{Path(file).expanduser().absolute()}"


def _with_password(url: str, password: SecretStr) -> str:
    """The URL with the password in it. Raises ValueError where there is one already, or no place for one."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite" or not parts.hostname:
        raise ValueError("allowed is a password only beside the URL of a server")
    if parts.password or "password" in parse_qs(parts.query):
        raise ValueError("allowed is one password only, and one stands in the URL already")
    name, _, address = parts.netloc.rpartition("@")
    secret = quote(password.get_secret_value(), safe="")
    return parts._replace(netloc=f"{name}:{secret}@{address}").geturl()


def _split_url(value: str, schemes: tuple[str, ...], example: str) -> SplitResult:
    allowed = f"allowed is a URL such as {example} ({', '.join(schemes)})"
    scheme, separator, _ = value.partition("://")
    if not separator:
        raise ValueError(allowed)
    if scheme not in schemes:
        near = did_you_mean(scheme, schemes)
        raise ValueError(f"the scheme {scheme!r} is unknown; {near or allowed}")
    try:
        parts = urlsplit(value)
        _ = parts.port  # parsed only when asked for
    except ValueError:
        raise ValueError(f"the host or port cannot be read; {allowed}") from None
    return parts
