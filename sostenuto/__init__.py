"""The Python client of Sostenuto's HTTP API. It needs `httpx2` and the standard library, and nothing of the server.

    from sostenuto import Sostenuto

    with Sostenuto() as client:  # SOSTENUTO_URL, SOSTENUTO_TOKEN
        job = client.submit("Summarise input/report.pdf", files=["report.pdf"])
        print(client.wait(job).result)

`AsyncSostenuto` is the same with `await`. Everything public is named here.
"""

from sostenuto.async_client import AsyncSostenuto
from sostenuto.client import Sostenuto
from sostenuto.errors import (
    Conflict,
    ConnectionFailed,
    Forbidden,
    Invalid,
    Misconfigured,
    NotFound,
    ServerFailed,
    SostenutoError,
    TooLarge,
    Unauthorized,
    Unavailable,
    UnexpectedAnswer,
    WaitTimeout,
)
from sostenuto.records import (
    Budget,
    Comment,
    Event,
    File,
    HistoryEntry,
    Job,
    Message,
    Piece,
    Question,
    Todo,
    ToolCall,
    Worker,
)

__all__ = [
    "AsyncSostenuto",
    "Budget",
    "Comment",
    "Conflict",
    "ConnectionFailed",
    "Event",
    "File",
    "Forbidden",
    "HistoryEntry",
    "Invalid",
    "Job",
    "Message",
    "Misconfigured",
    "NotFound",
    "Piece",
    "Question",
    "ServerFailed",
    "Sostenuto",
    "SostenutoError",
    "Todo",
    "TooLarge",
    "ToolCall",
    "Unauthorized",
    "Unavailable",
    "UnexpectedAnswer",
    "WaitTimeout",
    "Worker",
]
