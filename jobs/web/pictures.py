"""Pictures of a workspace, shown in the page: only what begins as one of four kinds, and as nothing but that kind."""

from __future__ import annotations

from contextlib import closing
from typing import BinaryIO

from fastapi import APIRouter, Response

from jobs import views
from jobs.api.problems import Problem
from jobs.api.routing import FilesReader, Installed
from jobs.audit import record
from jobs.web.pages import PageRoute
from jobs.workspace import open_file, workspace_path

router = APIRouter(prefix="/jobs/{job_id}", route_class=PageRoute)
MOST_BYTES = 20 << 20
HEADERS = {
    # Opened by itself it is a picture and nothing else: no script, no form, no frame, whatever is in it.
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cache-Control": "no-cache",
    "Content-Disposition": "inline",
}


def kind_of(beginning: bytes) -> str | None:
    """The media type of PNG, JPEG, GIF or WebP by the first bytes; None for all else, SVG among it."""
    if beginning.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if beginning.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if beginning.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if beginning[:4] == b"RIFF" and beginning[8:12] == b"WEBP":
        return "image/webp"
    return None


@router.get("/picture/{path:path}")
def show_picture(job_id: str, path: str, installation: Installed, principal: FilesReader) -> Response:
    """The picture. 415 for a file that is none of the four kinds, 413 for one that is too large to be shown."""
    job = views.get_job(installation, job_id, principal.sees)
    with closing(open_file(workspace_path(installation.settings.data_dir, job.id), path)) as file:
        kind, data = _read(file)
    record(installation, "download", principal.owner, job.id, path=path, size=len(data))
    return Response(data, media_type=kind, headers=HEADERS)


def _read(file: BinaryIO) -> tuple[str, bytes]:
    data = file.read(16)
    kind = kind_of(data)
    if kind is None:
        raise Problem(415, "NoPicture", "this file is no PNG, JPEG, GIF or WebP")
    data += file.read(MOST_BYTES)
    if len(data) > MOST_BYTES:
        raise Problem(
            413, "PictureTooLarge", f"a picture of more than {MOST_BYTES:,} bytes is only downloaded"
        )
    return kind, data
