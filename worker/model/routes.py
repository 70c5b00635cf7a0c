"""From a model's name to the endpoint that serves it: by the settings alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from urllib.parse import urlsplit, urlunsplit

from jobs.errors import ConfigurationError
from jobs.model_settings import EndpointSettings, LimitSettings, ModelSettings, entry_for
from jobs.settings import Settings
from worker.model.scripted import PREFIX

OPENAI_URL = "https://api.openai.com/v1"


@dataclass(frozen=True)
class Route:
    """Where a model is, and what it is called there. Holds no key."""

    model: str  # as jobs name it
    wire_name: str  # as its endpoint names it
    endpoint: str | None  # the name in the settings; None: OPENAI_BASE_URL's
    base_url: str
    entry: ModelSettings
    endpoint_limits: LimitSettings

    @cached_property
    def address(self) -> str:
        """The endpoint as it is shown and shared: without a password."""
        parts = urlsplit(self.base_url)
        if parts.username is None and parts.password is None:
            return self.base_url
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    @cached_property
    def key(self) -> str:
        """What cooldowns and learned facts are shared by: the endpoint's address and the model."""
        return f"{self.address} {self.wire_name}"

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).hostname or ""

    @property
    def is_scripted(self) -> bool:
        return self.model.startswith(PREFIX)


def route_of(settings: Settings, model: str) -> Route:
    """The route of a model: by its entry in `models`, else by a prefix ENDPOINT/, else to OPENAI_BASE_URL."""
    entry = entry_for(settings.models, model)
    name, wire_name = entry.endpoint, entry.name
    if name is None and not model.startswith(PREFIX):
        prefix, _, rest = model.partition("/")
        if rest and prefix in settings.endpoints:
            name, wire_name = prefix, wire_name or rest
    if name is None:
        base_url, limits = settings.openai_base_url or OPENAI_URL, LimitSettings()
    else:
        base_url, limits = settings.endpoints[name].base_url, settings.endpoints[name].limits
    if model.startswith(PREFIX):
        base_url = "scripted"
    return Route(model, wire_name or model, name, base_url, entry, limits)


def endpoint_settings(settings: Settings, route: Route) -> EndpointSettings:
    """The named endpoint's settings. Raises ConfigurationError where its key's variable is named and not set."""
    assert route.endpoint is not None
    found = settings.endpoints[route.endpoint]
    if found.api_key_env and not found.key():
        raise ConfigurationError(
            f"the key of the endpoint {route.endpoint} is missing: {found.api_key_env} is not set",
            hint=f"set {found.api_key_env} where the workers are started",
        )
    return found
