"""The strict endpoint itself: a real HTTP server in a thread, with controls for the test that owns it."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections import Counter
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Any, Self

from tests.strict_endpoint import http1
from tests.strict_endpoint.completion import chunks, sse, whole_completion
from tests.strict_endpoint.minds import (
    Answer,
    ChatRequest,
    HttpFailure,
    Mind,
    Raw,
    Reply,
    StreamFailure,
    error_body,
)
from tests.strict_endpoint.rules import (
    Profile,
    Refused,
    Violation,
    check,
    check_prefix,
    check_window,
    parse,
    prompt_tokens,
)
from worker.model.errors import ModelError
from worker.model.openai_client import CALL_HEADER

LONGEST_WAIT = 30.0  # bounds every wait of a test for a call: far above what any needs
ANY = "*"


class Gate:
    """Calls of some labels wait here until the test lets them go: after their request was checked, or after so many
    chunks of their answer."""

    def __init__(self, labels: str, loop: asyncio.AbstractEventLoop, after_chunks: int | None = None) -> None:
        self.labels = labels
        self.after_chunks = after_chunks
        self._loop = loop
        self._opened = asyncio.Event()
        self._changed = threading.Condition()
        self._held = 0

    def wait_held(self, count: int = 1) -> None:
        """Block until `count` calls have arrived here in all; AssertionError after LONGEST_WAIT."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: self._held >= count, LONGEST_WAIT)
            assert arrived, f"{self._held} of {count} calls labelled {self.labels} arrived"

    def release(self) -> None:
        """Let every held call go, and every later one pass."""
        self._loop.call_soon_threadsafe(self._opened.set)

    async def pass_through(self) -> None:
        with self._changed:
            self._held += 1
            self._changed.notify_all()
        await self._opened.wait()


class StrictEndpoint:
    """An OpenAI-compatible endpoint on loopback that answers 400 to whatever breaks a rule.

    `mind` answers the others; it runs on the server's thread, so it must not block. Labels come from the header
    X-Sostenuto-Call ("job/visit/epoch") and are matched as glob patterns; the prefix rule compares requests of one
    label. A request that does not fit `window` is answered as an overflow and kept in `overflows`, apart from
    `violations`: meeting an overflow is no fault of its own.

        with StrictEndpoint(lambda request: Reply("hello")) as endpoint:
            ...                                  # OPENAI_BASE_URL=endpoint.url
            endpoint.assert_clean()
    """

    def __init__(
        self,
        mind: Mind,
        *,
        window: int | None = None,
        api_key: str | None = None,
        chunk_delay: float = 0.0,
        user_after_tool: bool = True,
        vision: bool = True,
        reasoning: bool = False,
        port: int = 0,
    ) -> None:
        self.mind = mind
        self.profile = Profile(window, user_after_tool, vision, reasoning)
        self.chunk_delay = chunk_delay
        self.violations: list[Violation] = []
        self.overflows: list[Violation] = []
        self.requests: list[ChatRequest] = []
        self.models: list[dict[str, Any]] = [{"id": "strict", "object": "model"}]
        self.paths: list[str] = []  # of every request, with their queries
        self.side_calls: Counter[str] = Counter()  # of what is no chat completion, by the path's last part
        self._api_key = api_key
        self._port = port
        self._counts: Counter[str] = Counter()
        self._aborted: Counter[str] = Counter()
        self._previous: dict[str, list[dict[str, Any]]] = {}
        self._failures: list[tuple[str, HttpFailure | StreamFailure]] = []
        self._delays: dict[str, float] = {}
        self._gates: list[Gate] = []
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._connections: set[asyncio.Task[None]] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="strict-endpoint", daemon=True)

    # Life

    def start(self) -> Self:
        self._thread.start()
        assert self._ready.wait(LONGEST_WAIT), "the endpoint did not start"
        return self

    def stop(self) -> None:
        """Drop every connection and end."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LONGEST_WAIT)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """For OPENAI_BASE_URL."""
        return f"http://127.0.0.1:{self._port}/v1"

    # Controls, callable from any thread

    def hold(self, labels: str = ANY, after_chunks: int | None = None) -> Gate:
        """Hold calls of these labels, before or within their answer, until the gate is released."""
        gate = Gate(labels, self._loop, after_chunks)
        self._gates.append(gate)
        return gate

    def delay(self, seconds: float, labels: str = ANY) -> None:
        """Wait so long before the first byte of these labels' answers."""
        self._delays[labels] = seconds

    def fail(self, failure: HttpFailure | StreamFailure, labels: str = ANY, times: int = 1) -> None:
        """Let the next `times` calls of these labels fail so."""
        with self._changed:
            self._failures += [(labels, failure)] * times

    def calls(self, labels: str = ANY) -> int:
        """How many requests of these labels have come, refused ones included."""
        with self._changed:
            return sum(count for label, count in self._counts.items() if fnmatchcase(label, labels))

    def aborted(self, labels: str = ANY) -> int:
        """How many calls of these labels the client dropped before their answer ended."""
        with self._changed:
            return sum(count for label, count in self._aborted.items() if fnmatchcase(label, labels))

    def wait_calls(self, count: int, labels: str = ANY) -> None:
        """Block until so many requests have come; AssertionError after LONGEST_WAIT."""
        self._wait(lambda: self.calls(labels) >= count, f"{count} calls labelled {labels}")

    def wait_aborted(self, count: int = 1, labels: str = ANY) -> None:
        """Block until the client has dropped so many calls; AssertionError after LONGEST_WAIT."""
        self._wait(lambda: self.aborted(labels) >= count, f"{count} dropped calls labelled {labels}")

    def assert_clean(self) -> None:
        """AssertionError naming every rule that was broken."""
        broken = [
            f"{violation.label}: {violation.rule}: {violation.message}" for violation in self.violations
        ]
        assert not broken, "\n".join(broken)

    def _wait(self, condition: Any, what: str) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, LONGEST_WAIT), f"no {what} came"

    # The server, on its own thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._accept, "127.0.0.1", self._port, backlog=1000, limit=1 << 20)
        )
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        connections = list(self._connections)
        for task in connections:
            task.cancel()
        if connections:
            self._loop.run_until_complete(asyncio.wait(connections))
        self._loop.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # start_server's own task logs a cancellation as an error; ours is cancelled at the end as a matter of course.
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while (request := await http1.read_request(reader)) is not None:
                if not await self._serve(request, reader, writer):
                    break
        except (asyncio.CancelledError, ConnectionError):
            writer.transport.abort()
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(
        self, request: http1.HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer one request; False where the connection is over."""
        self.paths.append(request.path)
        if not request.path.partition("?")[0].endswith("/chat/completions"):
            writer.write(self._side_door(request))
            await writer.drain()
            return True
        label = request.headers.get(CALL_HEADER.lower(), "")
        answering = asyncio.ensure_future(self._answer(request, label, writer))
        leaving = asyncio.ensure_future(
            reader.read(1)
        )  # nothing more is sent until we have answered: only the end
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        gone = leaving.done() and not answering.done()
        for task in (answering, leaving):
            task.cancel()
        outcomes = await asyncio.gather(answering, leaving, return_exceptions=True)
        if gone or isinstance(outcomes[0], ConnectionError):
            with self._changed:
                self._aborted[label] += 1
                self._changed.notify_all()
            return False
        if isinstance(outcomes[0], BaseException):
            raise outcomes[0]
        return outcomes[0]

    def _side_door(self, request: http1.HttpRequest) -> bytes:
        """For endpoints that run as a process of their own: what their test would ask the object."""
        name = request.path.rsplit("/", 1)[-1]
        self.side_calls[name] += 1
        match name:
            case "models":
                return http1.whole(200, {"object": "list", "data": self.models})
            case "_violations":
                return http1.whole(200, [dataclasses.asdict(violation) for violation in self.violations])
            case "_calls":
                return http1.whole(200, dict(self._counts))
        return http1.whole(404, error_body(f"there is nothing at {request.path}", "not_found"))

    async def _answer(self, request: http1.HttpRequest, label: str, writer: asyncio.StreamWriter) -> bool:
        """Check, hold, answer. False where the connection was dropped on purpose."""
        with self._changed:
            number = self._counts[label]
            self._counts[label] += 1
            self._changed.notify_all()
        if self._api_key is not None and request.headers.get("authorization") != f"Bearer {self._api_key}":
            return await self._send(
                writer, http1.whole(401, error_body("Incorrect API key provided", "invalid_api_key"))
            )
        try:
            chat = self._checked(request, label, number)
        except Refused as refusal:
            return await self._send(writer, self._refusal(refusal, label))
        await self._pass_gates(label, None)
        for labels, seconds in self._delays.items():
            if fnmatchcase(label, labels):
                await asyncio.sleep(seconds)
        failure = self._next_failure(label)
        if isinstance(failure, HttpFailure):
            return await self._send(writer, http1.whole(failure.status, failure.body, failure.headers))
        answer = self._think(chat)
        if isinstance(answer, HttpFailure):
            return await self._send(writer, http1.whole(answer.status, answer.body, answer.headers))
        if isinstance(answer, Raw):
            return await self._send_raw(writer, answer)
        await asyncio.sleep(answer.delay)
        if not chat.body.get("stream"):
            return await self._send(writer, http1.whole(200, whole_completion(chat, answer)))
        return await self._stream(writer, chat, answer, failure)

    async def _pass_gates(self, label: str, sent: int | None) -> None:
        for gate in list(self._gates):
            if gate.after_chunks == sent and fnmatchcase(label, gate.labels):
                await gate.pass_through()

    def _checked(self, request: http1.HttpRequest, label: str, number: int) -> ChatRequest:
        """The request, if no rule refuses it. Raises Refused."""
        body = parse(request.body)
        check(body, self.profile)
        if label:
            check_prefix(self._previous.get(label, []), body["messages"], self.profile)
        if self.profile.window is not None:
            check_window(body, self.profile.window)
        self._previous[label] = body["messages"]
        chat = ChatRequest(label, body, request.headers, number, prompt_tokens(body))
        self.requests.append(chat)
        return chat

    def _refusal(self, refusal: Refused, label: str) -> bytes:
        violation = Violation(refusal.rule, str(refusal), label)
        if refusal.rule == "window":
            self.overflows.append(violation)
            return http1.whole(400, error_body(violation.message, "context_length_exceeded"))
        self.violations.append(violation)
        return http1.whole(
            400, error_body(f"strict endpoint: {violation.rule}: {violation.message}", "strict_rule")
        )

    def _next_failure(self, label: str) -> HttpFailure | StreamFailure | None:
        with self._changed:
            for position, (labels, failure) in enumerate(self._failures):
                if fnmatchcase(label, labels):
                    del self._failures[position]
                    return failure
        return None

    def _think(self, chat: ChatRequest) -> Answer:
        try:
            return self.mind(chat)
        except ModelError as error:  # a script without a reply
            return HttpFailure(400, error_body(str(error), "no_reply"))
        except Exception as error:  # noqa: BLE001 - a mind's bug belongs to its test, as a violation
            self.violations.append(Violation("mind", f"{type(error).__name__}: {error}", chat.label))
            return HttpFailure(400, error_body(f"the mind failed: {error}", "mind_failed"))

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> bool:
        writer.write(data)
        await writer.drain()
        return True

    async def _send_raw(self, writer: asyncio.StreamWriter, answer: Raw) -> bool:
        writer.write(http1.stream_head(answer.content_type))
        for piece in answer.pieces:
            writer.write(http1.chunk(piece))
            await writer.drain()
            await asyncio.sleep(self.chunk_delay)
        if answer.cut:
            writer.transport.abort()
            return False
        return await self._send(writer, http1.END_OF_CHUNKS)

    async def _stream(
        self, writer: asyncio.StreamWriter, chat: ChatRequest, reply: Reply, failure: StreamFailure | None
    ) -> bool:
        writer.write(http1.stream_head("text/event-stream"))
        for sent, event in enumerate(chunks(chat, reply)):
            await self._pass_gates(chat.label, sent)
            if failure is not None and sent == failure.after_chunks:
                return await self._break_off(writer, failure.ending)
            writer.write(http1.chunk(event))
            await writer.drain()
            if self.chunk_delay:
                await asyncio.sleep(self.chunk_delay)
        if failure is not None:  # longer than the reply: only its end is missing
            return await self._break_off(writer, failure.ending)
        return await self._send(writer, http1.chunk(b"data: [DONE]\n\n") + http1.END_OF_CHUNKS)

    async def _break_off(self, writer: asyncio.StreamWriter, ending: str | bytes | dict[str, Any]) -> bool:
        if ending == "hang":
            await asyncio.Event().wait()
        if ending == "cut":
            await writer.drain()
            writer.close()  # what was written still arrives, the chunked body's end does not
            return False
        if isinstance(ending, dict):
            writer.write(http1.chunk(sse(ending)))
        elif isinstance(ending, bytes):
            writer.write(http1.chunk(ending))
        return await self._send(writer, http1.END_OF_CHUNKS)
