"""Images: shown once the batch is answered, kept byte for byte in every later request, lost by no crash."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest
import sqlalchemy as sa
from PIL import Image

from storage.crashpoints import CrashPoint
from storage.images import image_usage
from storage.models import images
from tests.agent.stage import COMPLETE, PowerCut, Stage, call, calls, go
from tests.strict_endpoint import ChatRequest
from worker.context_view import context_of
from worker.images import MOST_SHOWN
from worker.tools.images import image_tokens


def png(width: int = 30, height: int = 20, colour: str = "red") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(buffer, "PNG")
    return buffer.getvalue()


def parts_of(request: ChatRequest) -> list[dict[str, Any]]:
    """All parts of messages that have any."""
    return [
        part
        for message in request.messages
        if isinstance(message["content"], list)
        for part in message["content"]
    ]


def pictures(request: ChatRequest) -> list[Image.Image]:
    urls = [part["image_url"]["url"] for part in parts_of(request) if part["type"] == "image_url"]
    assert all(url.startswith("data:image/png;base64,") for url in urls)
    return [Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) for url in urls]


def test_an_image_is_shown_after_its_batch_and_stays(stage: Stage) -> None:
    """An image in a tool message is refused by servers: it is a user part after the batch, before all other texts."""
    seen: list[ChatRequest] = []

    def look(request: ChatRequest) -> Any:
        seen.append(request)
        return calls(call("Act", n=2))

    def look_again(request: ChatRequest) -> Any:
        seen.append(request)
        return COMPLETE

    job_id = stage.play(
        calls(call("ReadImage", path="input/a.png"), call("Act", n=1), call("ReadImage", path="input/b.png")),
        look,
        look_again,
        files={"a.png": png(), "b.png": png(50, 40, "blue")},
    )
    assert stage.job(job_id).state == "succeeded"
    assert stage.results(job_id)[0].startswith(
        "The image input/a.png is shown in the next message: PNG, 30 × 20"
    )
    for request in seen:
        assert [picture.size for picture in pictures(request)] == [(30, 20), (50, 40)]
    shown = seen[0].messages[-1]
    assert shown["role"] == "user"
    assert shown["content"][0]["text"] == (
        "Image 1: input/a.png, 30 × 20 pixels\nImage 2: input/b.png, 50 × 40 pixels"
    )
    assert image_usage(stage.doors.db, job_id)[0] == 2
    [row] = [row for row in stage.messages(job_id) if row.kind == "gap"]
    assert row.tokens >= 2 * image_tokens(30, 20)


def test_the_same_image_is_stored_once(stage: Stage) -> None:
    stage.process.settings  # noqa: B018  the stage is set
    job_id = stage.play(
        calls(call("ReadImage", path="input/a.png")),
        calls(call("ReadImage", path="input/a.png")),
        COMPLETE,
        files={"a.png": png()},
    )
    assert image_usage(stage.doors.db, job_id)[0] == 1
    assert len(stage.gaps(job_id)) == 2


@pytest.mark.parametrize("point", [CrashPoint("result.committed"), CrashPoint("gap.committed")])
def test_no_crash_loses_or_doubles_an_image(
    stage: Stage, point: CrashPoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the result, and after the message that shows it: the next worker sends it once."""
    died: list[CrashPoint] = []

    def maybe_die(here: CrashPoint) -> None:
        if here == point and not died:
            died.append(here)
            raise PowerCut

    monkeypatch.setattr("storage.checkpoints.crash_point", maybe_die)
    counts: list[int] = []

    def look(request: ChatRequest) -> Any:
        counts.append(len(pictures(request)))
        return COMPLETE

    stage.tell(calls(call("ReadImage", path="input/a.png")), look)
    job_id = stage.submit(files={"a.png": png()})
    stage.crash()
    stage.restart()
    stage.sweep()
    stage.run()
    assert died == [point]
    assert counts == [1]
    assert stage.job(job_id).state == "succeeded"


def test_comments_and_images_share_a_message(stage: Stage) -> None:
    """A strict server takes no two user messages in a row."""

    def comment(_: ChatRequest) -> Any:
        stage.comment(job_id, "look closely")
        return calls(call("ReadImage", path="input/a.png"))

    def look(request: ChatRequest) -> Any:
        kinds = [part["type"] for part in request.messages[-1]["content"]]
        assert kinds == ["text", "image_url", "text"]
        assert "look closely" in request.messages[-1]["content"][2]["text"]
        return COMPLETE

    stage.tell(comment, look)
    job_id = stage.submit(files={"a.png": png()})
    stage.run()
    assert stage.job(job_id).state == "succeeded"


def test_a_new_movement_shows_no_images_of_the_last(stage: Stage) -> None:
    stage.piece("two", {"name": "one", "default_next": "two"}, {"name": "two", "default_next": "COMPLETE"})

    def look(request: ChatRequest) -> Any:
        assert parts_of(request) == []
        return COMPLETE

    job_id = stage.play(
        calls(call("ReadImage", path="input/a.png"), call("transition", next_step="two", summary="seen")),
        look,
        files={"a.png": png()},
        piece="two",
    )
    assert stage.job(job_id).state == "succeeded"


def test_an_image_costs_by_its_pixels_and_fits_a_small_window(stage: Stage) -> None:
    """3 MB of noise on the first turn, in a window of 8,000 tokens."""
    buffer = io.BytesIO()
    Image.effect_noise((1500, 1400), 90).convert("RGB").save(buffer, "PNG")
    stage.restart(context_window=8000, max_output_tokens=1000)

    def look(request: ChatRequest) -> Any:
        [part] = [part for part in parts_of(request) if part["type"] == "image_url"]
        assert part["image_url"]["url"].startswith("data:image/jpeg;base64,") or len(str(part)) < 2_100_000
        return COMPLETE

    job_id = stage.play(
        calls(call("ReadImage", path="input/a.png")), look, files={"a.png": buffer.getvalue()}
    )
    assert stage.job(job_id).state == "succeeded"
    [row] = [row for row in stage.messages(job_id) if row.kind == "gap"]
    assert row.tokens < 4000


def test_more_images_than_an_endpoint_takes_are_refused(stage: Stage) -> None:
    batch = calls(*[call("ReadImage", path="input/a.png") for _ in range(MOST_SHOWN + 1)])
    job_id = stage.play(batch, COMPLETE, files={"a.png": png()})
    results = stage.results(job_id)
    assert sum("is shown" in result for result in results) == MOST_SHOWN
    assert f"there are {MOST_SHOWN} images in this conversation already" in results[MOST_SHOWN]


def test_images_go_with_their_job(stage: Stage) -> None:
    job_id = stage.play(calls(call("ReadImage", path="input/a.png")), COMPLETE, files={"a.png": png()})
    with stage.doors.db.write() as conn:
        conn.execute(sa.text("DELETE FROM jobs WHERE id = :id"), {"id": job_id})
        assert conn.execute(sa.select(sa.func.count()).select_from(images)).scalar_one() == 0


def test_a_model_without_vision_is_told_what_stood_there(stage: Stage) -> None:
    stage.reopen(models={"*": {"vision": False}})

    def look(request: ChatRequest) -> Any:
        assert parts_of(request) == []
        assert "Image 1: input/a.png, 30 × 20 pixels" in request.messages[-1]["content"]
        assert "takes no images" in request.messages[-1]["content"]
        return COMPLETE

    job_id = stage.play(calls(call("ReadImage", path="input/a.png")), look, files={"a.png": png()})
    assert stage.job(job_id).state == "succeeded"


def test_the_folder_of_commands_survives_a_crash_and_ends_with_the_movement(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next command begins where the last one ended, on whatever worker; a new movement begins in the workspace."""
    stage.piece("two", {"name": "one", "default_next": "two"}, {"name": "two", "default_next": "COMPLETE"})
    stage.tell(
        calls(call("Bash", command="mkdir output/deep; cd output/deep")),
        calls(call("Act")),
        calls(call("Bash", command="touch first; pwd")),
        go("two"),
        calls(call("Bash", command="touch second")),
        COMPLETE,
    )

    def die(context: Any, arguments: Any) -> str | None:
        raise PowerCut

    stage.acts[0].effect = die
    job_id = stage.submit(piece="two")
    stage.crash()
    stage.restart()
    stage.sweep()
    stage.run()
    assert stage.job(job_id).state == "succeeded"
    assert (stage.workspace(job_id) / "output/deep/first").exists()
    assert (stage.workspace(job_id) / "second").exists()


def test_the_context_view_names_images_and_counts_them(stage: Stage) -> None:
    job_id = stage.play(
        calls(call("ReadImage", path="input/a.png")),
        calls(call("Act")),
        files={"a.png": png(900, 600)},
        budget={"max_steps": 2},
    )
    view = context_of(stage.doors.db, job_id)
    [shown] = [part for part in view["messages"] if isinstance(part["message"]["content"], list)]
    text, picture = shown["message"]["content"]
    assert "input/a.png" in text["text"]
    assert "no longer shown" not in text["text"]
    assert picture["image_url"]["url"].startswith("image:")
    assert shown["tokens"] > image_tokens(900, 600)
