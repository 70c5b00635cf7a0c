"""PNG, JPEG, WebP and GIF: told by their content, decoded, scaled, and written anew as PNG or JPEG.

What is passed on are the pixels alone: no metadata, no second image, nothing that another decoder could stumble over.
"""

from __future__ import annotations

import io
import json
import math
from typing import Any, BinaryIO

from PIL import Image, ImageOps, UnidentifiedImageError

from worker.tools.decoding.refused import Refused

_FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
_QUALITIES = (85, 70, 50)
_SMALLER = 0.7
_LEAST_SIDE = 64


def read(request: dict[str, Any], file: BinaryIO, out: BinaryIO) -> None:
    """Writes a line that describes the image, then its bytes."""
    most_pixels, longest, most_bytes = request["most_pixels"], request["longest_side"], request["most_bytes"]
    Image.MAX_IMAGE_PIXELS = None  # looked at here, before anything is decoded
    try:
        image: Image.Image = Image.open(file, formats=_FORMATS)
    except UnidentifiedImageError:
        raise Refused("it is no PNG, JPEG, WebP or GIF image, or a damaged one") from None
    width, height = image.size
    if width * height > most_pixels:
        raise Refused(f"it has {width} × {height} pixels; an image may have {most_pixels}")
    kind = image.format
    frames = getattr(image, "n_frames", 1) if kind != "JPEG" else 1
    if kind == "JPEG":
        image.draft("RGB", (longest, longest))  # decodes a large photograph at a fraction of its size
    image.seek(0)
    image = ImageOps.exif_transpose(image)
    turned = (image.width > image.height) != (width > height)
    image = _plain(image)
    share = min(math.sqrt(request["most_shown"] / (image.width * image.height)), 1.0)
    bounds = (min(int(image.width * share), longest) or 1, min(int(image.height * share), longest) or 1)
    image.thumbnail(bounds, Image.Resampling.LANCZOS)
    data, media_type, image = _encoded(image, as_photograph=kind == "JPEG", most_bytes=most_bytes)
    description = {
        "kind": kind,
        "frames": frames,
        "original": [height, width] if turned else [width, height],
        "width": image.width,
        "height": image.height,
        "media_type": media_type,
        "bytes": len(data),
    }
    out.write(json.dumps(description).encode() + b"\n" + data)


def _plain(image: Image.Image) -> Image.Image:
    """In one of the modes that every encoder takes."""
    if image.mode in ("RGB", "L"):
        return image
    transparent = "A" in image.mode or "transparency" in image.info
    return image.convert("RGBA" if transparent else "RGB")


def _encoded(image: Image.Image, *, as_photograph: bool, most_bytes: int) -> tuple[bytes, str, Image.Image]:
    if not as_photograph:
        data = _saved(image, "PNG", optimize=False)
        if len(data) <= most_bytes:
            return data, "image/png", image
    if image.mode == "RGBA":
        background = Image.new("RGB", image.size, "white")
        background.paste(image, mask=image.getchannel("A"))
        image = background
    while True:
        for quality in _QUALITIES:
            data = _saved(image, "JPEG", quality=quality)
            if len(data) <= most_bytes:
                return data, "image/jpeg", image
        if min(image.size) <= _LEAST_SIDE:
            raise Refused("it cannot be made small enough")
        image = image.resize((round(image.width * _SMALLER) or 1, round(image.height * _SMALLER) or 1))


def _saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()
