"""ReadImage: an image of the workspace, shown to the model."""

from __future__ import annotations

import hashlib
import math
from typing import Any, BinaryIO, ClassVar

from jobs.resolver import open_regular
from storage.records import NewImage
from worker.tools.base import CrashPolicy, ToolContext, ToolResult
from worker.tools.decoder import CannotDecode, decode, json_lines, require_size
from worker.tools.paths import opened_workspace, relative_path

LONGEST_SIDE = 1568  # pixels; what vision models take without scaling it down themselves
MOST_BYTES = 1_500_000  # of the image as it is sent, before base64
_LARGEST = 50 << 20
_MOST_PIXELS = 100_000_000
_PIXELS_A_TOKEN = 750
_LEAST_TOKENS = 85
_TOLD_TOKENS = 60  # of the result's text
_TYPES = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}


class ReadImage:
    """Reading changes nothing, so a call whose worker died is simply made again.

    The result is text; the image itself follows, once all calls of the reply are answered, as a part of the next user
    message: no server takes an image inside a tool result.
    """

    name = "ReadImage"
    description = (
        "Look at an image of the workspace: PNG, JPEG, WebP, or the first frame of a GIF. It is scaled to at most "
        f"{LONGEST_SIDE} pixels a side and shown to you in the next message."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "minLength": 1,
                "description": "path in the workspace, such as input/a.png",
            },
        },
        "required": ["path"],
        "additionalProperties": False,
    }
    crash = CrashPolicy.REPEATABLE
    edits = False

    def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        path = relative_path(context, arguments["path"])
        with opened_workspace(context) as root_fd, open_regular(root_fd, path) as file:
            image, told = shown_image(context, path, file)
        return ToolResult(f"The image {path} is shown in the next message: {told}.", images=(image,))


def shown_image(context: ToolContext, name: str, file: BinaryIO, *, share: int = 1) -> tuple[NewImage, str]:
    """An image of any origin as the model can be shown it, and what it is in words; within 1/`share` of the call's budget.

    Raises CannotDecode, FileRejected for its size, SandboxUnavailable, Cancelled.
    """
    tokens = context.budget_tokens // share - _TOLD_TOKENS
    options = {
        "most_pixels": _MOST_PIXELS,
        "longest_side": LONGEST_SIDE,
        "most_shown": max(tokens, _LEAST_TOKENS) * _PIXELS_A_TOKEN,
        "most_bytes": MOST_BYTES,
    }
    require_size(name, file, _LARGEST)
    answer = decode(context, name, file, reader="image", options=options, most=MOST_BYTES + 10_000)
    line, _, data = answer.partition(b"\n")
    return _checked(name, next(json_lines(line), {}), data)


def image_tokens(width: int, height: int) -> int:
    """What an image costs of the context: by its pixels, whatever its bytes."""
    return max(math.ceil(width * height / _PIXELS_A_TOKEN), _LEAST_TOKENS)


def _checked(path: str, description: dict[str, Any], data: bytes) -> tuple[NewImage, str]:
    """The image, if the child's answer is one that may be passed on."""
    numbers = [description.get("width"), description.get("height"), *_pair(description.get("original"))]
    media_type = description.get("media_type")
    sides = [number for number in numbers if isinstance(number, int) and 0 < number < 1 << 31]
    if (
        len(sides) != 4
        or max(sides[:2]) > LONGEST_SIDE
        or not isinstance(media_type, str)
        or not data.startswith(_TYPES.get(media_type, b"\0"))
        or len(data) > MOST_BYTES
    ):
        raise CannotDecode("the image's reader gave no answer that can be understood")
    width, height, *original = sides
    image = NewImage(
        sha=hashlib.sha256(data).hexdigest(),
        media_type=media_type,
        data=data,
        width=width,
        height=height,
        tokens=image_tokens(width, height),
        path=path,
    )
    kind = description.get("kind")
    told = (
        f"{kind if kind in ('PNG', 'JPEG', 'WEBP', 'GIF') else 'image'}, {original[0]} × {original[1]} pixels"
    )
    if [width, height] != original:
        told += f", scaled to {width} × {height}"
    frames = description.get("frames")
    if isinstance(frames, int) and frames > 1:
        told += f", the first of {frames} frames"
    return image, told


def _pair(value: Any) -> list[Any]:
    return value if isinstance(value, list) and len(value) == 2 else [None, None]
