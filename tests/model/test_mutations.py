"""A thousand damaged streams through the real client: each is a whole reply or one clear error, soon."""

from __future__ import annotations

import re
from collections import Counter

from tests.model.calling import a_request, model_of
from tests.model.mutations import mutations
from tests.strict_endpoint import Raw, StrictEndpoint
from worker.cancel import CancelToken
from worker.model.errors import ModelError, ModelErrorKind
from worker.model.openai_client import OpenAIModel
from worker.model.types import ModelReply

# What alone can say that a reply is whole.
_ENDED = re.compile(rb'\[DONE\]|"finish_reason"\s*:\s*"')
IDLE = 20.0  # seconds: far above what any needs, so that a call that hangs is seen as one


def _outcome(model: OpenAIModel, number: int) -> ModelReply | ModelError:
    try:
        return model.complete(a_request(label=f"job-{number}/1/1"), CancelToken())
    except ModelError as error:
        return error


def test_a_thousand_damaged_streams() -> None:
    """No crash, no hang, no call out of a reply that did not end; every text can be stored."""
    bodies = list(mutations(1_000, seed=7))
    answer: list[Raw] = []
    seen: Counter[str] = Counter()
    with StrictEndpoint(lambda _: answer[-1]) as endpoint:
        model = model_of(endpoint, idle=IDLE)
        for number, pieces in enumerate(bodies):
            answer[:] = [Raw(pieces, cut=number % 3 == 0)]
            reply = _outcome(model, number)
            if isinstance(reply, ModelError):
                assert "nothing came for" not in str(reply), (number, pieces)
                assert reply.kind is not ModelErrorKind.OVERFLOW
                assert str(reply).isprintable()
                seen[str(reply.kind)] += 1
                continue
            seen["reply"] += 1
            assert _ENDED.search(b"".join(pieces)), (number, pieces)
            for text in (reply.content, *(call.name + call.arguments for call in reply.tool_calls)):
                (text or "").encode()
            assert len({call.id for call in reply.tool_calls}) == len(reply.tool_calls)
    assert seen["reply"] > 100, seen
    assert seen["interrupted"] > 100, seen
