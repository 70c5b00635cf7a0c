"""Images on their way to the model: admitted, shown once their batch of calls is answered, and kept for each request.

A result with images is text; its row notes what they are, and their bytes are stored with its commit. Which are still to
be shown is read from the rows alone, so a run that takes over shows them too, once.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from storage.images import image_usage, load_images
from storage.records import Message, NewMessage
from worker.layout import IMAGES, shown_images
from worker.tokens import estimate_tokens
from worker.tools.base import ToolResult

if TYPE_CHECKING:
    from worker.job_run import JobRun

MOST_IMAGES = 200  # of a job
MOST_IMAGE_BYTES = 64 << 20
MOST_SHOWN = 20  # at once: endpoints refuse requests that are too large


def admitted(job: JobRun, result: ToolResult) -> ToolResult:
    """The result, or an error instead where the job has been shown as many images as it may."""
    if not result.images:
        return result
    count, size = image_usage(job.process.db, job.job_id)
    if count + len(result.images) > MOST_IMAGES or size + _size(result) > MOST_IMAGE_BYTES:
        told = f"Error: not shown: this job has been shown {count} images, which is as many as it may"
    elif len(shown_images(job.rows)) + len(waiting_images(job.rows)) + len(result.images) > MOST_SHOWN:
        told = f"Error: not shown: there are {MOST_SHOWN} images in this conversation already"
    else:
        return result
    return replace(result, content=told, is_error=True, images=())


def _size(result: ToolResult) -> int:
    return sum(len(image.data) for image in result.images)


def references(result: ToolResult) -> dict[str, Any] | None:
    """What a result's row notes of its images."""
    return {IMAGES: [image.reference() for image in result.images]} if result.images else None


def waiting_images(rows: Sequence[Message]) -> list[dict[str, Any]]:
    """The images of the last reply's results, in call order, that no user message has shown yet."""
    waiting: list[dict[str, Any]] = []
    for row in reversed(rows):
        noted = (row.extra or {}).get(IMAGES)
        if row.role == "assistant" or (row.kind == "gap" and noted):
            break
        if row.role == "tool" and noted:
            waiting[:0] = noted
    return waiting


def image_rows(job: JobRun) -> list[NewMessage]:
    """The user message that shows the images of the last batch; none if there are no new ones."""
    waiting = waiting_images(job.rows)
    if not waiting:
        return []
    text = "\n".join(f"Image {at}: {described(image)}" for at, image in enumerate(waiting, 1))
    tokens = estimate_tokens(text) + sum(image["tokens"] for image in waiting)
    return [NewMessage("user", "gap", text, extra={IMAGES: waiting}, tokens=tokens)]


def described(image: Mapping[str, Any]) -> str:
    """An image in words."""
    return f"{image['path']}, {image['width']} × {image['height']} pixels"


def image_urls(job: JobRun) -> dict[str, str]:
    """The images that the next request shows, as `data:` URLs by their hash; read once a run."""
    wanted = {image["sha"] for image in shown_images(job.rows)}
    known = job.image_urls
    if missing := wanted - known.keys():
        for image in load_images(job.process.db, job.job_id, missing):
            encoded = base64.b64encode(image.data).decode()
            known[image.sha] = f"data:{image.media_type};base64,{encoded}"
    for sha in known.keys() - wanted:
        del known[sha]
    return known
