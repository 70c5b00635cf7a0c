"""A model endpoint on loopback that refuses whatever the pickiest real server refuses. See `StrictEndpoint`."""

from tests.strict_endpoint.endpoint import Gate, StrictEndpoint
from tests.strict_endpoint.minds import (
    Answer,
    Call,
    ChatRequest,
    HttpFailure,
    Mind,
    Raw,
    Reply,
    StreamFailure,
    script_mind,
)
from tests.strict_endpoint.rules import Violation

__all__ = [
    "Answer",
    "Call",
    "ChatRequest",
    "Gate",
    "HttpFailure",
    "Mind",
    "Raw",
    "Reply",
    "StreamFailure",
    "StrictEndpoint",
    "Violation",
    "script_mind",
]
