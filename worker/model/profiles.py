"""What is known of a model: its window, its longest reply, its price, and the rules of its endpoint.

What knows better comes first: the settings, then what the endpoint itself said (asked, or in its errors), then the
table below. It holds what vendors publish and what changes rarely; a model that is not in it is asked about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from jobs.model_settings import LimitSettings, Price
from jobs.settings import Settings
from worker.model.routes import Route
from worker.model.rules import Rules, adapted
from worker.prices import price_of

# Servers whose models are what their names say: elsewhere any name may stand for anything, so the server is asked first.
VENDORS = (
    "api.openai.com",
    ".openai.azure.com",
    "api.deepseek.com",
    "api.mistral.ai",
    "generativelanguage.googleapis.com",
    "api.anthropic.com",
    "api.x.ai",
)


@dataclass(frozen=True, slots=True)
class Known:
    """A line of the table."""

    window: int | None = None
    max_output: int | None = None
    vision: bool | None = None
    reasoning: str = "drop"
    id_format: str = "openai"
    signatures: bool = False
    limit_field: str | None = None


_NEW = "max_completion_tokens"  # reasoning models refuse max_tokens

# By the last part of a name, in lower case; the first that fits counts. Sources: the vendors' model pages
# (platform.openai.com/docs/models, docs.anthropic.com, ai.google.dev, api-docs.deepseek.com, docs.mistral.ai, docs.x.ai).
BUILT_IN: tuple[tuple[str, Known], ...] = (
    ("gpt-5", Known(400_000, 128_000, vision=True, limit_field=_NEW)),
    ("gpt-5-mini*", Known(400_000, 128_000, vision=True, limit_field=_NEW)),
    ("gpt-5-nano*", Known(400_000, 128_000, vision=True, limit_field=_NEW)),
    ("gpt-5-20*", Known(400_000, 128_000, vision=True, limit_field=_NEW)),
    ("gpt-5*", Known(vision=True, limit_field=_NEW)),
    ("gpt-4.1*", Known(1_047_576, 32_768, vision=True)),
    ("gpt-4o*", Known(128_000, 16_384, vision=True)),
    ("gpt-4-turbo*", Known(128_000, 4_096, vision=True)),
    ("gpt-4", Known(8_192, vision=False)),
    ("gpt-4-0613", Known(8_192, vision=False)),
    ("gpt-3.5-turbo*", Known(16_385, 4_096, vision=False)),
    ("o3-mini*", Known(200_000, 100_000, vision=False, limit_field=_NEW)),
    ("o1*", Known(200_000, 100_000, limit_field=_NEW)),
    ("o3*", Known(200_000, 100_000, vision=True, limit_field=_NEW)),
    ("o4-mini*", Known(200_000, 100_000, vision=True, limit_field=_NEW)),
    ("claude-*", Known(200_000, vision=True)),
    ("gemini-2.0-*", Known(1_048_576, 8_192, vision=True)),
    ("gemini-2.5-*", Known(1_048_576, 65_536, vision=True)),
    # Its calls carry a thought signature, without which the next request is refused.
    ("gemini-3*", Known(1_048_576, 65_536, vision=True, signatures=True)),
    # Demands the reasoning of turns with calls back, and refuses or ignores any other.
    ("deepseek-reasoner*", Known(128_000, vision=False, reasoning="tool_calls")),
    ("deepseek-chat*", Known(128_000, 8_192, vision=False)),
    ("kimi-k2-thinking*", Known(262_144, vision=False, reasoning="tool_calls")),
    ("mistral-large*", Known(128_000, id_format="mistral")),
    ("mistral-*", Known(id_format="mistral")),
    ("ministral-*", Known(id_format="mistral")),
    ("codestral-*", Known(id_format="mistral")),
    ("devstral-*", Known(id_format="mistral")),
    ("magistral-*", Known(id_format="mistral")),
    ("pixtral-*", Known(vision=True, id_format="mistral")),
    ("mixtral-*", Known(id_format="mistral")),
)


@dataclass(frozen=True, slots=True)
class Profile:
    """Everything that a request to a model depends on. `window` and `max_output` None: not known."""

    model: str  # as jobs name it
    wire_name: str  # as its endpoint names it
    key: str  # of cooldowns and facts: endpoint and model
    endpoint_key: str  # of the endpoint alone
    window: int | None
    window_source: str | None  # settings | learned | built in
    max_output: int | None
    price: Price | None
    rules: Rules
    limits: LimitSettings
    endpoint_limits: LimitSettings

    @property
    def vision(self) -> bool:
        """Does it take images, as far as is known? Unknown counts as yes: a refusal is remembered."""
        return self.rules.vision


def profile_of(settings: Settings, route: Route, facts: Mapping[str, Any]) -> Profile:
    """The profile by settings, learned facts and the table."""
    entry, known = route.entry, built_in(route.wire_name)
    window, source = _window(settings, route, facts, known)
    learned_output = facts.get("max_output")
    max_output = settings.max_output_tokens or entry.max_output_tokens
    if learned_output is not None:
        max_output = min(max_output or learned_output, learned_output)
    rules = Rules(
        vision=_first(entry.vision, known.vision, True),
        reasoning=entry.reasoning or known.reasoning,
        user_after_tool=_first(entry.user_after_tool, True),
        system_role=_first(entry.system_role, True),
        parallel_calls=_first(entry.parallel_tool_calls, True),
        id_format=entry.id_format or known.id_format,
        signatures=known.signatures,
        limit_field=known.limit_field or (_NEW if route.host.endswith("openai.com") else "max_tokens"),
        parameters=entry.parameters,
    )
    return Profile(
        model=route.model,
        wire_name=route.wire_name,
        key=route.key,
        endpoint_key=route.address,
        window=window,
        window_source=source,
        max_output=max_output,
        price=entry.price or price_of(settings.prices, route.model),
        rules=adapted(rules, facts.get("refused") or {}),
        limits=entry.limits,
        endpoint_limits=route.endpoint_limits,
    )


def built_in(name: str) -> Known:
    """What the table says; nothing for a name that is not in it."""
    short = name.lower().rpartition("/")[2]
    return next((known for glob, known in BUILT_IN if fnmatchcase(short, glob)), Known())


def is_vendor(host: str) -> bool:
    """Is it a server that serves a vendor's own models under their names?"""
    return any(host == name or (name.startswith(".") and host.endswith(name)) for name in VENDORS)


def _window(
    settings: Settings, route: Route, facts: Mapping[str, Any], known: Known
) -> tuple[int | None, str | None]:
    for value, source in (
        (settings.context_window, "settings"),
        (route.entry.window, "settings"),
        (facts.get("window"), "learned"),
        (known.window, "built in"),
    ):
        if value is not None:
            return int(value), source
    return None, None


def _first(*values: bool | None) -> bool:
    return next(bool(value) for value in values if value is not None)
