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
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

import httpx2
import openai
from openai._types import RequestOptions
from openai.types.chat import ChatCompletionChunk

from jobs.errors import ConfigurationError
from jobs.model_settings import EndpointSettings
from jobs.settings import Settings
from worker.cancel import CancelToken
from worker.model.assembly import ReplyBuilder
from worker.model.classify import endpoint_error, is_error
from worker.model.errors import ModelError, ModelErrorKind, one_line
from worker.model.loop import ModelLoop, shared_loop
from worker.model.routes import OPENAI_URL
from worker.model.sse import EventParser
from worker.model.types import ModelReply, ModelRequest
from worker.model.wire import encode_request

CALL_HEADER = "X-Sostenuto-Call"
CONNECT_TIMEOUT = 10.0
# A compressed stream gains nothing here, and a small one could unpack to any size.
_HEADERS = {"Content-Type": "application/json", "Accept": "text/event-stream", "Accept-Encoding": "identity"}
MAX_REPLY_BYTES = 64 * 1024 * 1024
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
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    azure: bool = False
    api_version: str | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)  # besides the key

    @classmethod
    def from_settings(cls, settings: Settings) -> Endpoint:
        """Raises ConfigurationError naming the variable that is missing."""
        key = settings.openai_api_key.get_secret_value().strip() if settings.openai_api_key else ""
        if not key and not settings.openai_base_url:
            raise ConfigurationError(
                "no model endpoint is configured: OPENAI_API_KEY is not set",
                hint="set OPENAI_API_KEY, or OPENAI_BASE_URL for a local server, or SOSTENUTO_MODEL=scripted:PATH",
            )
        _check_key("OPENAI_API_KEY", key)
        return cls(
            base_url=settings.openai_base_url or OPENAI_URL,
            api_key=key,
            idle_timeout=settings.model_idle_timeout,
            total_timeout=settings.model_total_timeout,
        )

    @classmethod
    def named(cls, endpoint: EndpointSettings, settings: Settings) -> Endpoint:
        """One of the settings' endpoints. Raises ConfigurationError where a secret of it can be in no header."""
        _check_key(endpoint.api_key_env or "", endpoint.key())
        for name, value in endpoint.sent_headers().items():
            _check_key(endpoint.headers[name], value)
        return cls(
            base_url=endpoint.base_url,
            api_key=endpoint.key(),
            idle_timeout=settings.model_idle_timeout,
            total_timeout=settings.model_total_timeout,
            headers=endpoint.sent_headers(),
            azure=endpoint.dialect == "azure",
            api_version=endpoint.api_version,
            secrets=tuple(endpoint.secrets()),
        )

    @property
    def origin(self) -> str:
        """Host and port: what errors and the shared cooldown call this endpoint."""
        parts = urlsplit(self.base_url)
        return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or "the endpoint"

    def path(self, model: str) -> str:
        """Where chat completions are asked for, below the base URL."""
        if self.azure and self.api_version:
            return f"/openai/deployments/{quote(model, safe='')}/chat/completions"
        return "/chat/completions"

    def masked(self, text: str) -> str:
        """The text without the endpoint's secrets."""
        for secret in (self.api_key, *self.secrets):
            if secret:
                text = text.replace(secret, "***")
        return text


def _check_key(name: str, key: str) -> None:
    if not (key.isascii() and key.isprintable()):
        raise ConfigurationError(
            f"{name} holds characters that no key has", hint="set it again, without quotes or line ends"
        )


class OpenAIModel:
    """A Model over one endpoint; used from many threads, its I/O on the process's one loop."""

    def __init__(self, endpoint: Endpoint, loop: ModelLoop | None = None) -> None:
        self.endpoint = endpoint
        self._loop = loop or shared_loop()
        # Connections belong to the loop that opened them; a stopped loop takes its clients with it.
        self._turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Iterator[openai.AsyncOpenAI]] = (
            weakref.WeakKeyDictionary()
        )

    def __repr__(self) -> str:
        return f"OpenAIModel({self.endpoint!r})"

    def complete(self, request: ModelRequest, cancel: CancelToken) -> ModelReply:
        """One request, one whole reply; see `Model`. A partial reply is thrown away whole. Nothing is asked twice."""
        body = encode_request(request)
        if request.tape is not None:
            request.tape.sent(body)
        return self._loop.run(lambda: self._call(request, body), cancel)

    async def _call(self, request: ModelRequest, body: bytes) -> ModelReply:
        builder = ReplyBuilder(self.endpoint.origin, request.model)
        answered = False
        if request.draft is not None:
            request.draft.begin(builder.so_far)
        try:
            async with (
                asyncio.timeout(self.endpoint.total_timeout) as deadline,
                self._open(request, body) as response,
            ):
                answered = True
                await self._read(request, response, builder, deadline)
        except TimeoutError:
            if not builder.ended:
                kind = ModelErrorKind.INTERRUPTED if answered else ModelErrorKind.TRANSIENT
                raise self._error(kind, f"no reply within {self.endpoint.total_timeout:g} s") from None
        return builder.reply()

    @contextlib.asynccontextmanager
    async def _open(self, request: ModelRequest, body: bytes) -> AsyncIterator[httpx2.Response]:
        """The response, its body still to come. Raises ModelError for every way of not getting one."""
        try:
            stream = await self._client().post(
                self.endpoint.path(request.model),
                cast_to=ChatCompletionChunk,
                content=body,
                options=self._options(request),
                stream=True,
                stream_cls=openai.AsyncStream[ChatCompletionChunk],
            )
        except openai.APIStatusError as error:
            response = error.response
            if request.tape is not None:
                request.tape.answered(response.status_code, response.headers)
                request.tape.received(response.content)
            raise endpoint_error(
                self.endpoint.origin,
                response.status_code,
                response.content,
                response.headers,
                self.endpoint.masked,
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

    def _options(self, request: ModelRequest) -> RequestOptions:
        headers: dict[str, str | openai.Omit] = dict(_HEADERS)
        headers[CALL_HEADER] = one_line(request.label).encode("ascii", "replace").decode()
        options: RequestOptions = {"headers": headers}
        if self.endpoint.azure:
            headers |= {"Authorization": openai.Omit(), "api-key": self.endpoint.api_key}
            if self.endpoint.api_version:
                options["params"] = {"api-version": self.endpoint.api_version}
        if not request.rules.streaming:  # silent until it is whole
            headers["Accept"] = "application/json"
            connect = min(CONNECT_TIMEOUT, self.endpoint.idle_timeout)
            options["timeout"] = httpx2.Timeout(self.endpoint.total_timeout, connect=connect)
        return options

    async def _read(
        self,
        request: ModelRequest,
        response: httpx2.Response,
        builder: ReplyBuilder,
        deadline: asyncio.Timeout,
    ) -> None:
        """Everything up to the stream's end. Raises ModelError unless the reply ended properly."""
        if request.tape is not None:
            request.tape.answered(response.status_code, response.headers)
        content_type = response.headers.get("content-type", "")
        if "html" in content_type:
            raise self._error(ModelErrorKind.TRANSIENT, "answers with a web page, not as a model endpoint")
        try:
            if "json" in content_type:
                whole = b"".join([chunk async for chunk in self._chunks(request, response)])
                self._take(whole, builder)
                builder.end()
            else:
                await self._read_events(request, response, builder, deadline)
        except httpx2.ReadTimeout:
            if not builder.ended:
                raise self._interrupted(f"nothing came for {self._patience}") from None
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            if not builder.ended:
                raise self._interrupted(f"the stream broke: {type(error).__name__}") from None
        except (ValueError, RecursionError) as error:
            raise self._interrupted(f"the stream cannot be read: {type(error).__name__}") from None

    async def _read_events(
        self,
        request: ModelRequest,
        response: httpx2.Response,
        builder: ReplyBuilder,
        deadline: asyncio.Timeout,
    ) -> None:
        parser = EventParser()
        hurried = False
        async for chunk in self._chunks(request, response):
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

    async def _chunks(self, request: ModelRequest, response: httpx2.Response) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in response.aiter_bytes():
            size += len(chunk)
            if request.tape is not None:
                request.tape.received(chunk)
            if size > MAX_REPLY_BYTES:
                raise self._interrupted(f"the reply is larger than {MAX_REPLY_BYTES} bytes")
            yield chunk

    def _take(self, payload: bytes, builder: ReplyBuilder) -> None:
        if payload == b"[DONE]":
            builder.end()
            return
        answer = json.loads(payload.decode("utf-8"))
        if is_error(answer):
            raise endpoint_error(self.endpoint.origin, 200, answer, {}, self.endpoint.masked)
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
                default_headers=self.endpoint.headers,
                http_client=httpx2.AsyncClient(
                    limits=limits, timeout=timeout, verify=trust, follow_redirects=False
                ),
            )
            for _ in range(_POOLS)
        ]
