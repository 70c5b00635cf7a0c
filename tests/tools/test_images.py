"""ReadImage: what is shown of good images, and what is said of bad ones."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from storage.records import NewImage
from tests.tools.helpers import call, make_context, make_workspace
from worker.sandbox.base import Sandbox
from worker.tools.base import ToolContext
from worker.tools.decoder import CannotDecode
from worker.tools.images import LONGEST_SIDE, MOST_BYTES, _checked, image_tokens


def image_of(kind: str, size: tuple[int, int] = (300, 200), mode: str = "RGB", **options: Any) -> bytes:
    buffer = io.BytesIO()
    colour: dict[str, float | tuple[float, ...]] = {
        "RGB": (200, 10, 10),
        "RGBA": (200, 10, 10, 128),
        "L": 100,
        "P": 3,
        "CMYK": (9, 9, 9, 9),
        "I;16": 999,
    }
    Image.new(mode, size, colour.get(mode, 0)).save(buffer, kind, **options)
    return buffer.getvalue()


def _shown(context: ToolContext, data: bytes, name: str = "input/a") -> tuple[NewImage, str]:
    (context.workspace / name).write_bytes(data)
    result = call(context, "ReadImage", path=name)
    assert not result.is_error, result.content
    [image] = result.images
    with Image.open(io.BytesIO(image.data)) as decoded:
        assert decoded.size == (image.width, image.height)
        assert f"image/{(decoded.format or '').lower()}" == image.media_type
        assert not decoded.getexif()
    return image, result.content


def _refused(context: ToolContext, data: bytes) -> str:
    (context.workspace / "input/a").write_bytes(data)
    result = call(context, "ReadImage", path="input/a")
    assert result.is_error
    assert result.images == ()
    return result.content


@pytest.mark.parametrize(
    ("kind", "mode"),
    [("PNG", m) for m in ("RGB", "RGBA", "L", "P", "I;16", "1", "LA")]
    + [("JPEG", "RGB"), ("JPEG", "L"), ("JPEG", "CMYK"), ("WEBP", "RGBA"), ("GIF", "P")],
)
def test_every_kind_is_shown_at_every_level(
    tmp_path: Path, any_sandbox: Sandbox, kind: str, mode: str
) -> None:
    """By its content, whatever its name says."""
    context = make_context(make_workspace(tmp_path), sandbox=any_sandbox)
    image, told = _shown(context, image_of(kind, mode=mode), "input/notes.txt")
    assert (image.width, image.height) == (300, 200)
    assert f"{kind}, 300 × 200 pixels" in told
    assert image.tokens == image_tokens(300, 200)
    assert image.path == "input/notes.txt"


def test_a_large_image_is_scaled_to_what_models_take(sandboxed: ToolContext) -> None:
    image, told = _shown(sandboxed, image_of("PNG", (4000, 1000)))
    assert (image.width, image.height) == (LONGEST_SIDE, LONGEST_SIDE // 4)
    assert told.endswith(f"PNG, 4000 × 1000 pixels, scaled to {LONGEST_SIDE} × {LONGEST_SIDE // 4}.")
    thin, _ = _shown(sandboxed, image_of("PNG", (20_000, 1)))
    assert (thin.width, thin.height) == (LONGEST_SIDE, 1)


def test_an_image_fits_the_budget_of_its_call(sandboxed: ToolContext) -> None:
    small = make_context(sandboxed.workspace, budget=500, sandbox=sandboxed.sandbox)
    image, _ = _shown(small, image_of("PNG", (1500, 1500)))
    assert image.tokens <= 500


def test_noise_is_sent_as_a_small_jpeg(sandboxed: ToolContext) -> None:
    """An image costs by its pixels; its bytes are bounded too."""
    buffer = io.BytesIO()
    Image.merge("RGB", [Image.effect_noise((1568, 1568), 120) for _ in range(3)]).save(buffer, "PNG")
    image, _ = _shown(sandboxed, buffer.getvalue())
    assert image.media_type == "image/jpeg"
    assert len(image.data) <= MOST_BYTES


def test_the_first_frame_and_the_right_way_up(sandboxed: ToolContext) -> None:
    frames = [Image.new("RGB", (40, 30), colour) for colour in ("red", "blue", "green")]
    buffer = io.BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:])
    image, told = _shown(sandboxed, buffer.getvalue())
    assert "the first of 3 frames" in told
    with Image.open(io.BytesIO(image.data)) as decoded:
        pixel = decoded.convert("RGB").getpixel((5, 5))
    assert isinstance(pixel, tuple)
    assert pixel[0] > 200
    assert pixel[2] < 50
    exif = Image.Exif()
    exif[0x0112] = 6  # taken with the camera on its side
    exif[0x010E] = "where I live"
    turned, told = _shown(sandboxed, image_of("JPEG", (300, 200), exif=exif))
    assert (turned.width, turned.height) == (200, 300)
    assert "JPEG, 200 × 300 pixels" in told
    assert b"where I live" not in turned.data


def _png(width: int, height: int, data: bytes) -> bytes:
    """A PNG whose header says what it likes."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (_png(60_000, 60_000, zlib.compress(b"\0" * 1000)), "60000 × 60000 pixels; an image may have"),
        (_png(1000, 1000, zlib.compress(b"\0" * 1000)), "cannot be read"),
        (image_of("JPEG")[:600], "cannot be read"),
        (image_of("PNG")[:100], "cannot be read"),
        (image_of("WEBP")[:60], "cannot be read"),
        (b"\x89PNG\r\n\x1a\n" + b"junk" * 100, "damaged"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "no PNG, JPEG, WebP or GIF image"),
        (image_of("TIFF"), "no PNG, JPEG, WebP or GIF image"),
        (image_of("BMP"), "no PNG, JPEG, WebP or GIF image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n", "no PNG, JPEG, WebP or GIF image"),
        (b"", "is empty"),
    ],
    ids=[
        "bomb",
        "short of pixels",
        "cut jpeg",
        "cut png",
        "cut webp",
        "lie",
        "svg",
        "tiff",
        "bmp",
        "eps",
        "empty",
    ],
)
def test_bombs_lies_and_pieces_are_refused(sandboxed: ToolContext, data: bytes, told: str) -> None:
    assert told in _refused(sandboxed, data)


def test_a_png_that_unpacks_without_end_is_refused(sandboxed: ToolContext) -> None:
    """Ten pixels that are followed by 500 MB, and a text chunk of 200 MB."""
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(b"\0" * (1 << 20)) for _ in range(500)) + packer.flush()
    image, _ = _shown(sandboxed, _png(10, 10, packed))
    assert (image.width, image.height) == (10, 10)
    text = b"Comment\0\0" + zlib.compress(b"\0" * (200 << 20), 9)
    chunk = struct.pack(">I", len(text)) + b"zTXt" + text + struct.pack(">I", zlib.crc32(b"zTXt" + text))
    good = image_of("PNG", (10, 10))
    assert "cannot be read" in _refused(sandboxed, good[:33] + chunk + good[33:])


@pytest.mark.parametrize(
    "change",
    [
        {"width": 5000},
        {"height": 0},
        {"width": "10"},
        {"original": [1]},
        {"media_type": "image/svg+xml"},
        {"media_type": "image/jpeg"},
        {"media_type": None},
    ],
)
def test_an_answer_that_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    """A child that a file took over may say anything."""
    good = {
        "kind": "PNG",
        "width": 10,
        "height": 10,
        "original": [10, 10],
        "media_type": "image/png",
        "frames": 1,
    }
    data = image_of("PNG", (10, 10))
    assert _checked("a", good, data)[0].width == 10
    with pytest.raises(CannotDecode):
        _checked("a", good | change, data)
    with pytest.raises(CannotDecode):
        _checked("a", good, data + b"\0" * MOST_BYTES)
