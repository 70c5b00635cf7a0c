"""A worker process's model calls: to the right endpoint, in the form it takes, with what was learned of it.

What one job learned shapes the messages of every other job's next call anew. Such a call opens a new epoch of its
conversation, so that the requests of one epoch always begin with the one before.

A refusal that can be worked around (an image, a parameter, an order of messages) is remembered for all workers and
the call is made again at once, in the other form. Every other failure is the caller's: nothing is retried here.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from jobs.settings import Settings
from storage.crashpoints import CrashPoint, crash_point
from storage.engine import Database
from storage.errors import StorageError
from worker.cancel import CancelToken
from worker.exchanges import ExchangeKeeper
from worker.model.errors import ModelError, ModelErrorKind
from worker.model.memory import ModelMemory
from worker.model.opening import open_model
from worker.model.profiles import Profile, is_vendor, profile_of
from worker.model.routes import Route, route_of
from worker.model.rules import MOST_REFUSALS, adapted, refused, to_wire
from worker.model.types import Model, ModelReply, ModelRequest

log = logging.getLogger(__name__)

ASK_AGAIN_SECONDS = 600.0  # a server that did not tell its window is not asked again sooner
LEAST_OUTPUT = 256  # tokens: a shorter reply is none
# Refusals that change the messages: where they would stay the same, asking again is of no use.
_OF_MESSAGES = {
    "images",
    "user_after_tool",
    "system",
    "parallel_calls",
    "null_content",
    "ids",
    "reasoning",
}


class ModelCalls:
    """Profiles and calls of every model that the settings reach. Thread-safe."""

    def __init__(self, settings: Settings, db: Database, keeper: ExchangeKeeper | None = None) -> None:
        self._settings = settings
        self.memory = ModelMemory(db)
        self._keeper = keeper
        self._open = lru_cache(maxsize=64)(lambda name: open_model(settings, name))
        self._route = lru_cache(maxsize=256)(lambda name: route_of(settings, name))
        self._profiles: dict[str, tuple[Mapping[str, Any], Profile]] = {}
        self._asked: dict[str, float] = {}  # by key, when its server was last asked for the window
        self._lock = threading.Lock()

    def route(self, model: str) -> Route:
        return self._route(model)

    def profile(self, model: str) -> Profile:
        """What is known of a model: the one place. Never touches the database or the network."""
        route = self.route(model)
        facts = self.memory.get(route.key)
        known = self._profiles.get(model)  # asked for many times a step
        if known is None or known[0] != facts:
            known = self._profiles[model] = (facts, profile_of(self._settings, route, facts))
        return known[1]

    def learn_window(self, model: str, cancel: CancelToken) -> None:
        """Asks the server for a window that nobody knows, once in a while; keeps the answer for all workers.

        Takes three seconds at most, and nothing where it is known. Raises Cancelled, StorageError,
        ConfigurationError (of an endpoint without its key).
        """
        route = self.route(model)
        if not model or route.is_scripted or not self._is_unknown(route):
            return
        with self._lock:
            asked = self._asked.get(route.key)
            if asked is not None and time.monotonic() - asked < ASK_AGAIN_SECONDS:
                return
            self._asked[route.key] = time.monotonic()
        from worker.model.openai_client import OpenAIModel
        from worker.model.probing import probe_window

        opened = self._open(model)
        if isinstance(opened, OpenAIModel):
            window = probe_window(opened.endpoint, route.wire_name, cancel)
            if window is not None:
                self.memory.learn(route.key, {"window": window, "window_from": "asked"})

    def _is_unknown(self, route: Route) -> bool:
        source = self.profile(route.model).window_source
        return source is None or (source == "built in" and not is_vendor(route.host))

    def complete(self, request: ModelRequest, cancel: CancelToken) -> ModelReply:
        """One reply to a request in the general form. Raises ModelError, Cancelled, ConfigurationError, StorageError.

        `adapted` of the reply names the refusals that this call met and worked around; the caller counts its epochs on
        by the reply's, or the error's, `epochs`.
        """
        opened = self._open(request.model)
        met: list[str] = []
        before, epochs = request.form, 0
        while True:
            profile = self.profile(request.model)
            form = profile.rules.form
            epochs += before is not None and form != before
            before = form
            sent = _formed(request, profile, epochs)
            try:
                reply = self._call(opened, sent, profile.endpoint_key, cancel)
                return replace(reply, adapted=tuple(met), form=form, epochs=epochs)
            except ModelError as error:
                error.epochs = epochs
                news = _news(profile, request, sent, error)
                if news is None or len(met) >= MOST_REFUSALS:
                    raise
                self._learn(profile, news)
                if not _can_be_asked_again(news):
                    raise
                met += _names(news)
                log.info("%s: works around a refusal (%s): %s", profile.key, ", ".join(met), error)

    def _call(self, model: Model, request: ModelRequest, address: str, cancel: CancelToken) -> ModelReply:
        tape = self._keeper.tape(request, address) if self._keeper is not None else None
        reply: ModelReply | None = None
        failure: Exception | None = None
        crash_point(CrashPoint.MODEL_CALLING)
        try:
            reply = model.complete(request if tape is None else replace(request, tape=tape), cancel)
        except Exception as error:
            failure = error
            raise
        finally:
            if tape is not None:
                tape.end(reply, failure)
        crash_point(CrashPoint.MODEL_REPLIED)
        return reply

    def _learn(self, profile: Profile, news: Mapping[str, Any]) -> None:
        with contextlib.suppress(
            StorageError
        ):  # then the next call meets it again; the agent meets the outage itself
            self.memory.learn(profile.key, news)


def _formed(request: ModelRequest, profile: Profile, epochs: int) -> ModelRequest:
    limit = request.max_output_tokens
    if profile.max_output is not None and limit is not None:
        limit = min(limit, profile.max_output)
    return replace(
        request,
        model=profile.wire_name,
        messages=to_wire(request.messages, profile.rules, request.model),
        max_output_tokens=limit,
        rules=profile.rules,
        label=later_epoch(request.label, epochs),
    )


def later_epoch(label: str, epochs: int) -> str:
    """The label of a conversation whose messages were shaped anew: "job/visit/epoch", so many epochs on."""
    head, slash, epoch = label.rpartition("/")
    if slash and epoch.isdecimal():
        return f"{head}/{int(epoch) + epochs}"
    return f"{label}+{epochs}" if epochs else label  # a call for a summary, a conversation of its own


def _news(
    profile: Profile, request: ModelRequest, sent: ModelRequest, error: ModelError
) -> dict[str, Any] | None:
    """What a failure teaches about the model; None where nothing, or nothing new."""
    if error.kind is ModelErrorKind.OVERFLOW:
        return _learned_limits(profile, sent, error)
    if error.kind is not ModelErrorKind.CAPABILITY:
        return None
    if error.capability == "max_output":
        return _shorter(sent, error.numbers.max_output)
    news = refused(profile.rules, error)
    if news is None:
        return None
    name = next(iter(news))
    if name in _OF_MESSAGES:
        changed = to_wire(request.messages, adapted(profile.rules, news), request.model)
        if changed == sent.messages:
            return None
    return {"refused": news}


def _shorter(sent: ModelRequest, named: int | None) -> dict[str, Any] | None:
    if sent.max_output_tokens is None:
        return None
    limit = named or sent.max_output_tokens // 2
    return {"max_output": limit} if LEAST_OUTPUT <= limit < sent.max_output_tokens else None


def _learned_limits(profile: Profile, sent: ModelRequest, error: ModelError) -> dict[str, Any] | None:
    window, prompt = error.numbers.window, error.numbers.prompt
    if window is None:
        return None
    news: dict[str, Any] = {"window": window, "window_from": "refusal"}
    if prompt is not None and prompt <= window * 3 // 4:  # not the prompt is too long, the wanted reply is
        news |= _shorter(sent, window // 4) or {}
    return news if news.get("max_output") or window != profile.window else None


def _can_be_asked_again(news: Mapping[str, Any]) -> bool:
    """A window that was learned does not make the request fit: the caller has to shorten it."""
    return "max_output" in news or "refused" in news


def _names(news: Mapping[str, Any]) -> list[str]:
    return [*(news.get("refused") or {}), *(["max_output"] if "max_output" in news else [])]
