"""What the synchronous and the asynchronous client share: requests, when they are repeated, and how they are carried out.

A flow is a generator that yields effects (send this, wait so long, here is an item) and is sent their outcomes. It knows
nothing of threads or event loops: `Sostenuto` and `AsyncSostenuto` each carry out effects in their own way, and all that
has to be decided is decided here, once.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx2

from sostenuto.errors import ConnectionFailed, SostenutoError, Unavailable, UnexpectedAnswer, error_of

T = TypeVar("T")
QUIET_SECONDS = (
    60.0  # an answer that sends nothing for so long is given up; streams send something every 15 s
)
MAX_EVENT_BYTES = 64 << 20
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0
_LONGEST_RETRY_AFTER = 60.0
_NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)


@dataclass(frozen=True, slots=True)
class Body:
    """What a request carries; `blocks` begins anew at each call, unless it is good for one sending only."""

    headers: Mapping[str, str]
    blocks: Callable[[], Iterator[bytes]]
    repeatable: bool = True


@dataclass(frozen=True, slots=True)
class Request:
    """`idempotent`: sending it twice is the same as sending it once. `path` begins with a slash, and is quoted.

    `endless`: its answer is quiet for long times, whatever else the client is told to bear.
    """

    method: str
    path: str
    params: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Body | None = None
    idempotent: bool = False
    endless: bool = False

    @property
    def repeatable(self) -> bool:
        return self.idempotent and (self.body is None or self.body.repeatable)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer; of one that was opened and is good, the content is yet to be read."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    def json(self) -> Any:
        """The content. Raises UnexpectedAnswer."""
        try:
            return json.loads(self.content)
        except ValueError:
            raise UnexpectedAnswer(
                f"HTTP {self.status} with content that is not JSON",
                hint="does the URL lead to a Sostenuto server?",
            ) from None


@dataclass(frozen=True, slots=True)
class Send:
    """Outcome: the Reply. Raises httpx2.TransportError."""

    request: Request


@dataclass(frozen=True, slots=True)
class Open:
    """As Send, but a good answer's content is read by Next or NextEvent, until the flow ends or opens another."""

    request: Request


@dataclass(frozen=True, slots=True)
class Next:
    """Outcome: the next bytes of the open answer, None at its end. Raises httpx2.TransportError."""


@dataclass(frozen=True, slots=True)
class NextEvent:
    """Outcome: the next server-sent event of the open answer, None at its end. Raises httpx2.TransportError."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Let time pass."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Do:
    """Call a function that may block. Outcome: what it returns; what it raises is raised."""

    function: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Item:
    """Give this to the caller, who may stop here."""

    value: Any


Effect = Send | Open | Next | NextEvent | Sleep | Do | Item
Flow = Generator[Effect, Any, T]


@dataclass(frozen=True, slots=True)
class Raised:
    """An effect's outcome, when it is an exception."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Finished:
    """A flow's end."""

    value: Any


def advance(flow: Flow[Any], outcome: Any) -> Effect | Finished:
    """Tells a flow the outcome of its last effect (None at first); gives its next effect or its end."""
    try:
        return flow.throw(outcome.error) if isinstance(outcome, Raised) else flow.send(outcome)
    except StopIteration as end:
        return Finished(end.value)


def answered(request: Request, retries: int, *, opened: bool = False) -> Flow[Reply]:
    """The answer to a request, repeated where that is safe.

    What never reached the server is always repeated; what did, or may have, only if it is idempotent. Raises the last
    failure.
    """
    patience = Patience(retries)
    while True:
        try:
            reply: Reply = yield (Open(request) if opened else Send(request))
        except httpx2.TransportError as error:
            failure: SostenutoError = connection_failed(error)
            again = request.repeatable or (isinstance(failure, ConnectionFailed) and not failure.sent)
        else:
            if reply.status < 300 or reply.status == 304:
                return reply
            failure = error_of(reply.status, reply.headers, reply.content)
            again = request.repeatable and isinstance(failure, Unavailable)
        if not again:
            raise failure
        yield from patience.after(failure)


class Patience:
    """How often a failure is borne before it is raised, and how long the pauses between are."""

    def __init__(self, retries: int) -> None:
        self._retries = retries
        self._failures = 0

    def renewed(self) -> None:
        """Something was achieved: the next failure is a first one."""
        self._failures = 0

    def after(self, failure: SostenutoError) -> Flow[None]:
        """Waits before the next attempt; raises the failure when there is none left."""
        if self._failures >= self._retries:
            raise failure
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**self._failures) * random.uniform(0.5, 1)
        self._failures += 1
        yield Sleep(max(pause, min(failure.retry_after or 0.0, _LONGEST_RETRY_AFTER)))


def connection_failed(error: httpx2.TransportError) -> ConnectionFailed:
    """The transport's error as one of ours."""
    sent = not isinstance(error, _NEVER_SENT)
    what = str(error) or type(error).__name__
    if not sent:
        return ConnectionFailed(
            f"the server cannot be reached: {what}", sent=False, hint="is `sostenuto web` running?"
        )
    failed = ConnectionFailed(f"the connection failed: {what}", sent=True)
    failed.__cause__ = error
    return failed
