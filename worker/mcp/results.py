"""What a server answered, as text and images for the model."""

from __future__ import annotations

import base64
import binascii
import json
import tempfile
from typing import Any

from mcp import types

from jobs.plain_text import one_line, strip_terminal
from storage.errors import SostenutoError
from storage.records import NewImage
from storage.text import clean_text
from worker.tools.base import ToolContext, ToolResult
from worker.tools.images import shown_image

MOST_IMAGES = 4  # of one answer; what is beyond is named
_MOST_CHARS_A_TOKEN = 16
_EMPTY = "[the tool answered nothing]"


def to_result(answer: types.CallToolResult, context: ToolContext, server: str) -> ToolResult:
    """Text as it is, images as ReadImage shows them, other content as a line that names it; structured content only
    where there is nothing else.

    Text far beyond the budget is dropped here already; the exact cut is the caller's. Raises Cancelled.
    """
    reader = _Reader(answer, context, server)
    parts = [reader.told(block) for block in answer.content]
    if not parts and answer.structured_content is not None:
        parts = [json.dumps(answer.structured_content, ensure_ascii=False)]
    text = "\n".join(parts)[: context.budget_tokens * _MOST_CHARS_A_TOKEN]
    content = strip_terminal(clean_text(text)) or _EMPTY
    if answer.is_error:
        return ToolResult(f"Error: {content}", is_error=True)
    return ToolResult(content, images=tuple(reader.images))


class _Reader:
    """One answer's blocks in their order; collects the images that can be shown."""

    def __init__(self, answer: types.CallToolResult, context: ToolContext, server: str) -> None:
        self.images: list[NewImage] = []
        self._context = context
        self._server = server
        self._shows = not answer.is_error
        self._share = min(sum(map(_holds_image, answer.content)), MOST_IMAGES) + 1  # the text has a part, too

    def told(self, block: Any) -> str:
        match block:
            case types.TextContent():
                return block.text
            case types.ImageContent():
                return self._image(block.mime_type, block.data)
            case types.AudioContent():
                return f"[sound: {one_line(block.mime_type, 80)}, {_size(block.data)}, not shown]"
            case types.ResourceLink():
                return f"[link: {block.name}, {block.uri}]"
            case types.EmbeddedResource():
                inner = block.resource
                if isinstance(inner, types.TextResourceContents):
                    return inner.text
                if _holds_image(block):
                    return self._image(inner.mime_type or "", inner.blob)
                return f"[data: {inner.uri}, {inner.mime_type or 'unknown kind'}, not shown]"
        return "[content of an unknown kind, not shown]"

    def _image(self, mime_type: str, data: str) -> str:
        named = f"[image: {one_line(mime_type, 80)}, {_size(data)}"
        if not self._shows:
            return f"{named}, not shown]"
        if len(self.images) >= MOST_IMAGES:
            return f"{named}, not shown: at most {MOST_IMAGES} of one answer are]"
        name = f"image {len(self.images) + 1} of {self._server}"
        try:
            with tempfile.TemporaryFile() as file:
                file.write(base64.b64decode(data, validate=True))
                file.flush()
                image, told = shown_image(self._context, name, file, share=self._share)
        except (SostenutoError, binascii.Error) as error:
            return f"{named}, not shown: {one_line(str(error))}]"
        self.images.append(image)
        return f"[{name}: {told}, shown in the next message]"


def _holds_image(block: Any) -> bool:
    if isinstance(block, types.EmbeddedResource):
        inner = block.resource
        return isinstance(inner, types.BlobResourceContents) and (inner.mime_type or "").startswith("image/")
    return isinstance(block, types.ImageContent)


def _size(data: str) -> str:
    return f"{len(data) * 3 // 4:,} bytes"
