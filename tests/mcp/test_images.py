"""Images in a server's answer: shown to the model like those of ReadImage, never lost and never doubled."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from jobs.states import State
from tests.agent.stage import COMPLETE, PowerCut, Stage, call, calls
from tests.mcp.conftest import Plain
from tests.strict_endpoint import ChatRequest
from tests.tools.test_images import image_of
from worker.mcp.results import MOST_IMAGES

PNG = image_of("PNG", (300, 200))
SHOW = "mcp__plain__show"


def image(data: bytes | str, mime_type: str = "image/png") -> dict[str, Any]:
    encoded = data if isinstance(data, str) else base64.b64encode(data).decode()
    return {"type": "image", "mimeType": mime_type, "data": encoded}


def blob(data: bytes, mime_type: str) -> dict[str, Any]:
    encoded = base64.b64encode(data).decode()
    return {"type": "resource", "resource": {"uri": "file:///x", "mimeType": mime_type, "blob": encoded}}


def shown(request: ChatRequest) -> list[str]:
    """The kinds of the images that a request shows, in order."""
    parts = [
        part
        for message in request.messages
        if isinstance(message["content"], list)
        for part in message["content"]
    ]
    return [part["image_url"]["url"].partition(";")[0] for part in parts if part["type"] == "image_url"]


@pytest.fixture
def served(stage: Stage, plain: Plain) -> Stage:
    """A stage with the plain server, and a window that has room for images."""
    stage.reopen(mcp={"plain": plain()}, models={"test-model": {"window": 100_000}})
    stage.process.mcp.start(lambda: None)
    return stage


def test_the_model_sees_what_a_server_shows(served: Stage) -> None:
    pictures = [image(PNG), blob(image_of("JPEG"), "image/jpeg"), blob(b"\0\1", "application/x-thing")]
    job_id = served.play(calls(call(SHOW, images=pictures)), COMPLETE)
    assert served.job(job_id).state == State.SUCCEEDED
    [result] = served.results(job_id)[:1]
    assert result.splitlines() == [
        "before",
        "[image 1 of plain: PNG, 300 × 200 pixels, shown in the next message]",
        "[image 2 of plain: JPEG, 300 × 200 pixels, shown in the next message]",
        "[data: file:///x, application/x-thing, not shown]",
        "after",
    ]
    assert shown(served.endpoint.requests[0]) == []
    assert len(shown(served.endpoint.requests[1])) == 2


@pytest.mark.parametrize(
    ("picture", "told"),
    [
        (image(b"no image"), "not shown: 'image 1 of plain' cannot be read"),
        (image("%%%"), "not shown: "),
        (image(b""), "not shown: 'image 1 of plain' is empty"),
        (image(PNG[:60]), "not shown: 'image 1 of plain' cannot be read"),
        (image(image_of("BMP"), "image/bmp"), "not shown: 'image 1 of plain' cannot be read"),
    ],
)
def test_what_is_no_image_is_named(served: Stage, picture: dict[str, Any], told: str) -> None:
    job_id = served.play(calls(call(SHOW, images=[picture])), COMPLETE)
    assert told in served.results(job_id)[0]
    assert served.results(job_id)[0].endswith("\nafter")
    assert shown(served.endpoint.requests[1]) == []
    assert served.job(job_id).state == State.SUCCEEDED


def test_more_images_than_an_answer_may_have_are_named(served: Stage) -> None:
    pictures = [image(image_of("PNG", (10 + at, 10))) for at in range(MOST_IMAGES + 2)]
    job_id = served.play(calls(call(SHOW, images=pictures)), COMPLETE)
    assert served.results(job_id)[0].count("not shown: at most 4 of one answer are") == 2
    assert len(shown(served.endpoint.requests[1])) == MOST_IMAGES


def test_a_crash_after_the_answer_neither_loses_nor_doubles_an_image(
    served: Stage, plain: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = served.submit()

    served.tell(calls(call(SHOW, images=[image(PNG)])))
    real = type(served.process).ask
    asked: list[object] = []

    def ask(*given: Any, **more: Any) -> Any:
        asked.append(given)
        if len(asked) == 2:
            raise PowerCut
        return real(*given, **more)

    monkeypatch.setattr(type(served.process), "ask", ask)
    served.crash()
    served.sweep()
    served.restart()
    served.process.mcp.start(lambda: None)
    served.tell(COMPLETE)
    served.run()
    assert served.job(job_id).state == State.SUCCEEDED
    assert len(shown(served.endpoint.requests[-1])) == 1
