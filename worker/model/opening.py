"""Which model a worker talks to: decided by the settings, once a process."""

from __future__ import annotations

from jobs.errors import ConfigurationError
from jobs.settings import Settings
from worker.model.routes import endpoint_settings, route_of
from worker.model.scripted import PREFIX, ScriptedModel
from worker.model.types import Model


def open_model(settings: Settings, name: str | None = None) -> Model:
    """The model `name` (default: the settings'), ready for use from many threads.

    Raises ConfigurationError naming the variable or the script's line; no connection is tried yet.
    """
    spec = name or settings.model
    if not spec:
        raise ConfigurationError(
            "no model is configured: SOSTENUTO_MODEL is not set",
            hint="set SOSTENUTO_MODEL to a model's name, or to scripted:PATH for a YAML of replies",
        )
    if spec.startswith(PREFIX):
        return ScriptedModel.load(spec)
    from worker.model.openai_client import Endpoint, OpenAIModel  # half a second, which scripts need not pay

    route = route_of(settings, spec)
    if route.endpoint is None:
        return OpenAIModel(Endpoint.from_settings(settings))
    return OpenAIModel(Endpoint.named(endpoint_settings(settings, route), settings))
