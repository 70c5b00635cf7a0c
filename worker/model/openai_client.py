"""The model client: any OpenAI-compatible Chat Completions endpoint, through the `openai` package.

Requests go out as bytes we encode (in the agent's own thread), and streams come back as bytes we parse: the package's
typed `create` costs 100 ms of the loop for a long conversation, and its chunk objects half the throughput of 200
streams. Retries are the caller's: the package's own are off, and so are redirects.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import weakref
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

import httpx2
import openai
from openai.types.chat import ChatCompletionChunk

from jobs.errors import ConfigurationError
from jobs.settings import Settings
from worker.cancel import CancelToken
from worker.model.assembly import ReplyBuilder
from worker.model.classify import endpoint_error, is_error
from worker.model.errors import ModelError, ModelErrorKind, one_line
from worker.model.loop import ModelLoop, shared_loop
from worker.model.sse import EventParser
from worker.model.types import ModelReply, ModelRequest
from worker.model.wire import encode_request

CALL_HEADER = "X-Sostenuto-Call"
CONNECT_TIMEOUT = 10.0
# A compressed stream gains nothing here, and a small one could unpack to any size.
_HEADERS = {"Content-Type": "application/json", "Accept": "text/event-stream", "Accept-Encoding": "identity"}
MAX_REPLY_BYTES = 64 * 1024 * 1024
_DEFAULT_URL = "https://api.openai.com/v1"
_NO_KEY = "none"  # local servers ask for no key, but the client package demands some text
# A pool looks at all its connections for each request and each response: one pool spent half the loop's time on that
# with 200 streams.
_POOLS = 16
_USAGE_GRACE = 5.0  # how long a reply that has ended waits for its usage and the stream's end


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go. Its repr and every error are free of the key."""

    base_url: str
    api_key: str = field(repr=False)  # empty where the server asks for none
    idle_timeout: float  # longest silence, in seconds, before or within a reply
    total_timeout: float  # longest whole call, in seconds

    @classmethod
    def from_settings(cls, settings: Settings) -> Endpoint:
        """Raises ConfigurationError naming the variable that is missing."""
        key = settings.openai_api_key.get_secret_value().strip() if settings.openai_api_key else ""
        if not key and not settings.openai_base_url:
            raise ConfigurationError(
                "no model endpoint is configured: OPENAI_API_KEY is not set",
                hint="set OPENAI_API_KEY, or OPENAI_BASE_URL for a local server, or SOSTENUTO_MODEL=scripted:PATH",
            )
        if not (key.isascii() and key.isprintable()):
            raise ConfigurationError(
                "OPENAI_API_KEY holds characters that no key has",
                hint="set it again, without quotes or line ends",
            )
        return cls(
            base_url=settings.openai_base_url or _DEFAULT_URL,
            api_key=key,
            idle_timeout=settings.model_idle_timeout,
            total_timeout=settings.model_total_timeout,
        )

    @property
    def origin(self) -> str:
        """Host and port: what errors and the shared cooldown call this endpoint."""
        parts = urlsplit(self.base_url)
        return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or "the endpoint"

    @property
    def is_openai(self) -> bool:
        return (urlsplit(self.base_url).hostname or "").endswith("openai.com")


@dataclass(frozen=True, slots=True)
class _Dialect:
    """Optional parameters as this endpoint takes them; learned from its refusals, for the life of the process."""

    limit_field: str
    include_usage: bool = True

    def without(self, refusal: str) -> _Dialect | None:
        """The dialect after a refusal, None where it is not about what we can change."""
        if "stream_options" in refusal and self.include_usage:
            return replace(self, include_usage=False)
        if re.search(rf"\b{self.limit_field}\b", refusal):
            other = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
            return replace(self, limit_field=other[self.limit_field])
        return None


class OpenAIModel:
    """A Model over one endpoint; used from many threads, its I/O on the process's one loop."""

    def __init__(self, endpoint: Endpoint, loop: ModelLoop | None = None) -> None:
        self.endpoint = endpoint
        self._loop = loop or shared_loop()
        self._dialect = _Dialect("max_completion_tokens" if endpoint.is_openai else "max_tokens")
        # Connections belong to the loop that opened them; a stopped loop takes its clients with it.
        self._turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Iterator[openai.AsyncOpenAI]] = (
            weakref.WeakKeyDictionary()
        )

    def __repr__(self) -> str:
        return f"OpenAIModel({self.endpoint!r})"

    def complete(self, request: ModelRequest, cancel: CancelToken) -> ModelReply:
        """One request, one whole reply; see `Model`. A partial reply is thrown away whole.

        A refused optional parameter (`stream_options`, the name of the output limit) is left out at once and
        remembered: that is the only thing asked twice.
        """
        dialect = self._dialect
        for _ in range(2):
            try:
                return self._ask(request, dialect, cancel)
            except ModelError as error:
                adapted = dialect.without(str(error)) if error.capability == "parameter" else None
                if adapted is None:
                    raise
                self._dialect = dialect = adapted
        return self._ask(request, dialect, cancel)

    def _ask(self, request: ModelRequest, dialect: _Dialect, cancel: CancelToken) -> ModelReply:
        body = encode_request(request, dialect.limit_field, dialect.include_usage)
        return self._loop.run(lambda: self._call(request, body), cancel)

    async def _call(self, request: ModelRequest, body: bytes) -> ModelReply:
        builder = ReplyBuilder(self.endpoint.origin, request.model)
        answered = False
        try:
            async with (
                asyncio.timeout(self.endpoint.total_timeout) as deadline,
                self._open(request.label, body) as response,
            ):
                answered = True
                await self._read(response, builder, deadline)
        except TimeoutError:
            if not builder.ended:
                kind = ModelErrorKind.INTERRUPTED if answered else ModelErrorKind.TRANSIENT
                raise self._error(kind, f"no reply within {self.endpoint.total_timeout:g} s") from None
        return builder.reply()

    @contextlib.asynccontextmanager
    async def _open(self, label: str, body: bytes) -> AsyncIterator[httpx2.Response]:
        """The response, its body still to come. Raises ModelError for every way of not getting one."""
        try:
            stream = await self._client().post(
                "/chat/completions",
                cast_to=ChatCompletionChunk,
                content=body,
                options={
                    "headers": {**_HEADERS, CALL_HEADER: one_line(label).encode("ascii", "replace").decode()}
                },
                stream=True,
                stream_cls=openai.AsyncStream[ChatCompletionChunk],
            )
        except openai.APIStatusError as error:
            response = error.response
            raise endpoint_error(
                self.endpoint.origin,
                response.status_code,
                response.content,
                response.headers,
                self.endpoint.api_key,
            ) from None
        except openai.APITimeoutError:
            raise self._error(ModelErrorKind.TRANSIENT, f"no answer within {self._patience}") from None
        except (openai.OpenAIError, httpx2.HTTPError, httpx2.InvalidURL) as error:
            reason = error.__cause__ or error
            message = f"cannot be reached: {type(reason).__name__}: {one_line(str(reason))}"
            raise self._error(ModelErrorKind.TRANSIENT, message) from None
        try:
            yield stream.response
        finally:
            await stream.response.aclose()

    async def _read(
        self, response: httpx2.Response, builder: ReplyBuilder, deadline: asyncio.Timeout
    ) -> None:
        """Everything up to the stream's end. Raises ModelError unless the reply ended properly."""
        content_type = response.headers.get("content-type", "")
        if "html" in content_type:
            raise self._error(ModelErrorKind.TRANSIENT, "answers with a web page, not as a model endpoint")
        try:
            if "json" in content_type:
                self._take(b"".join([chunk async for chunk in self._chunks(response)]), builder)
                builder.end()
            else:
                await self._read_events(response, builder, deadline)
        except httpx2.ReadTimeout:
            if not builder.ended:
                raise self._interrupted(f"nothing came for {self._patience}") from None
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            if not builder.ended:
                raise self._interrupted(f"the stream broke: {type(error).__name__}") from None
        except (ValueError, RecursionError) as error:
            raise self._interrupted(f"the stream cannot be read: {type(error).__name__}") from None

    async def _read_events(
        self, response: httpx2.Response, builder: ReplyBuilder, deadline: asyncio.Timeout
    ) -> None:
        parser = EventParser()
        hurried = False
        async for chunk in self._chunks(response):
            for payload in parser.feed(chunk):
                self._take(payload, builder)
            if builder.ended and not hurried:
                # Usage may follow, and only a connection read to its end serves again; but nobody waits long for it.
                hurried = True
                soon = asyncio.get_running_loop().time() + _USAGE_GRACE
                deadline.reschedule(min(soon, deadline.when() or soon))
        for payload in parser.flush():
            self._take(payload, builder)
        if not builder.ended:
            raise self._interrupted("the stream ended before the reply did")

    async def _chunks(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in response.aiter_bytes():
            size += len(chunk)
            if size > MAX_REPLY_BYTES:
                raise self._interrupted(f"the reply is larger than {MAX_REPLY_BYTES} bytes")
            yield chunk

    def _take(self, payload: bytes, builder: ReplyBuilder) -> None:
        if payload == b"[DONE]":
            builder.end()
            return
        answer = json.loads(payload.decode("utf-8"))
        if is_error(answer):
            raise endpoint_error(self.endpoint.origin, 200, answer, {}, self.endpoint.api_key)
        if isinstance(answer, dict):
            builder.add(answer)

    @property
    def _patience(self) -> str:
        return f"{self.endpoint.idle_timeout:g} s"

    def _interrupted(self, message: str) -> ModelError:
        return self._error(ModelErrorKind.INTERRUPTED, message)

    def _error(self, kind: ModelErrorKind, message: str) -> ModelError:
        return ModelError(kind, f"{self.endpoint.origin}: {message}")

    def _client(self) -> openai.AsyncOpenAI:
        """One of the running loop's clients, in turn. Called on the loop only, so no lock is needed."""
        loop = asyncio.get_running_loop()
        turn = self._turns.get(loop)
        if turn is None:
            turn = self._turns[loop] = itertools.cycle(self._make_clients())
        return next(turn)

    def _make_clients(self) -> list[openai.AsyncOpenAI]:
        idle = self.endpoint.idle_timeout
        timeout = httpx2.Timeout(idle, connect=min(CONNECT_TIMEOUT, idle), pool=None)
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=1000, keepalive_expiry=60)
        trust = httpx2.create_ssl_context()
        return [
            openai.AsyncOpenAI(
                api_key=self.endpoint.api_key or _NO_KEY,
                base_url=self.endpoint.base_url,
                max_retries=0,
                timeout=timeout,
                http_client=httpx2.AsyncClient(
                    limits=limits, timeout=timeout, verify=trust, follow_redirects=False
                ),
            )
            for _ in range(_POOLS)
        ]
