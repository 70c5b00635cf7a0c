"""Files of a job's workspace. Everything goes out as an attachment: what an agent wrote is never shown as a page."""

from __future__ import annotations

import os
import re
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path as FilePath
from typing import Annotated, Any, BinaryIO, cast
from urllib.parse import quote

from fastapi import APIRouter, Header, Path, Request, Response
from pydantic.json_schema import SkipJsonSchema
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from jobs import views
from jobs.api.problems import Problem
from jobs.api.resources import FileList, StoredFile
from jobs.api.routing import FilesReader, FilesWriter, Installed, TaggedRoute, answer, is_known
from jobs.api.tokens import Principal
from jobs.audit import record
from jobs.errors import FileRejected, NotFound
from jobs.installation import Installation
from jobs.submit import workspace_limits
from jobs.views import iso
from jobs.workspace import list_workspace, open_file, store_file, workspace_path

router = APIRouter(prefix="/api/jobs/{job_id}", tags=["files"], route_class=TaggedRoute)
WRITABLE = ("input", "output")
_BLOCK = 256 << 10
_IN_MEMORY = 1 << 20
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)
_NAME = r"(?:\.{0,2}[^./\x00][^/\x00]*|\.{3,}[^/\x00]*)"  # of a folder or file: all but . and ..
ReadPath = Annotated[
    str,
    Path(
        description="below the workspace, such as output/report.md",
        json_schema_extra={"pattern": rf"^{_NAME}(?:/{_NAME})*$"},
        openapi_examples={"result": {"value": "output/summary.md"}},
    ),
]
_CONTROL = r"\x00-\x1f\x7f-\x9f"
_FOLDER = rf"\.{{0,2}}[^./{_CONTROL}][^/{_CONTROL}]*|\.{{3,}}[^/{_CONTROL}]*"
_FILE = rf"\.{{0,2}}[^./\s{_CONTROL}]|(?:{_FOLDER})[^/\s{_CONTROL}]|\.{{3,}}"  # no blank at the end
WRITABLE_PATH = re.compile(rf"^({'|'.join(WRITABLE)})(?:/(?:{_FOLDER}))*/(?:{_FILE})$")
WritePath = Annotated[
    str,
    Path(
        description="in input/ or output/",
        json_schema_extra={"pattern": WRITABLE_PATH.pattern},
        openapi_examples={"input": {"value": "input/report.pdf"}},
    ),
]
_BINARY: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
}
_ZIP: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}}}
}
_PARTS = _BINARY | {
    206: {"description": "the range", "content": _BINARY[200]["content"]},
    416: {"description": "the file has no such range"},
}
_PUT_BODY = {"requestBody": {"required": True, "content": _BINARY[200]["content"]}}


def _root(installation: Installation, principal: Principal, job_id: str) -> FilePath:
    job = views.get_job(installation, job_id, principal.sees)
    return workspace_path(installation.settings.data_dir, job.id)


@router.get("/files", response_model=FileList)
def list_files(job_id: str, installation: Installed, principal: FilesReader) -> Response:
    """The files in input/ and output/; `complete` false: there are more than were counted."""
    most = installation.settings.max_workspace_files
    listing = list_workspace(_root(installation, principal, job_id), most=most)
    items = [
        {
            "path": entry.path,
            "kind": entry.kind,
            "size": entry.size,
            "modified": iso(entry.modified),
            "url": f"/api/jobs/{job_id}/files/{quote(entry.path, errors='surrogateescape')}",
        }
        for entry in listing.entries
    ]
    for item in items:
        item["path"] = _printable(str(item["path"]))
    return answer({"items": items, "total": listing.total, "complete": listing.complete})


@router.get("/files/{path:path}", response_class=Response, responses=_PARTS)
def get_file(  # noqa: PLR0917  FastAPI passes them by name
    job_id: str,
    path: ReadPath,
    installation: Installed,
    principal: FilesReader,
    byte_range: Annotated[
        str | None, Header(alias="Range", description="one range: bytes=FIRST-LAST")
    ] = None,
    if_none_match: Annotated[str | None, Header(include_in_schema=False)] = None,
    if_range: Annotated[
        str | SkipJsonSchema[None], Header(description="the ETag that the range is of")
    ] = None,
) -> Response:
    """A file, or one range of its bytes. No path leads out of the workspace."""
    file = open_file(_root(installation, principal, job_id), path)
    try:
        size, tag = _described(file)
        headers = {
            "ETag": tag,
            "Accept-Ranges": "bytes",
            "Content-Disposition": _attachment(path.rpartition("/")[2]),
            "Cache-Control": "no-cache",
        }
        if is_known(tag, if_none_match):
            file.close()
            return Response(status_code=304, headers=headers)
        wanted = _wanted(byte_range, size) if if_range in (None, tag) else None
        start, stop = wanted or (0, size)
        if wanted is not None:
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        headers["Content-Length"] = str(stop - start)
        file.seek(start)
        record(installation, "download", principal.owner, job_id, path=path, size=stop - start)
    except BaseException:
        file.close()
        raise
    return StreamingResponse(
        _blocks(file, stop - start),
        206 if wanted is not None else 200,
        headers=headers,
        media_type="application/octet-stream",
    )


@router.put("/files/{path:path}", response_model=StoredFile, openapi_extra=_PUT_BODY)
async def put_file(
    job_id: str, path: WritePath, request: Request, installation: Installed, principal: FilesWriter
) -> Response:
    """Put the request's body into input/ or output/, replacing an older file of that name at once or not at all."""
    if path.split("/", maxsplit=1)[0] not in WRITABLE:
        raise FileRejected(f"{path[:120]!r} is outside input/ and output/", hint="such as input/data.csv")
    if not WRITABLE_PATH.fullmatch(path):
        raise FileRejected(f"{path[:120]!r} does not name a file", hint="such as input/data.csv")
    root = await run_in_threadpool(_root, installation, principal, job_id)
    limits = workspace_limits(installation.settings)
    # A slow sender holds a file on disk here, and no thread.
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as spool:
        size = 0
        async for block in request.stream():
            size += len(block)
            if size > limits.file_bytes:
                raise Problem(413, "FileTooLarge", f"a file may have at most {limits.file_bytes:,} bytes")
            if size > _IN_MEMORY:
                await run_in_threadpool(spool.write, block)
            else:
                spool.write(block)
        spool.seek(0)
        source = cast(BinaryIO, spool)  # all that is done with it is to read
        await run_in_threadpool(store_file, root, path, source, limits)
    noted = partial(record, installation, "upload", principal.owner, job_id, path=path, size=size)
    await run_in_threadpool(noted)
    return answer({"path": path, "size": size})


@router.get("/workspace.zip", response_class=Response, responses=_ZIP)
def get_workspace(job_id: str, installation: Installed, principal: FilesReader) -> Response:
    """Everything in input/ and output/ as a ZIP, packed while it is sent. Links and special files are left out."""
    root = _root(installation, principal, job_id)
    names = [
        entry.path
        for entry in list_workspace(root, most=installation.settings.max_workspace_files).entries
        if entry.kind == "file"
    ]
    record(installation, "download", principal.owner, job_id, path="workspace.zip", files=len(names))
    headers = {"Content-Disposition": _attachment(f"{job_id}.zip")}
    return StreamingResponse(_zipped(root, names), headers=headers, media_type="application/zip")


def _described(file: BinaryIO) -> tuple[int, str]:
    status = os.fstat(file.fileno())
    return status.st_size, f'"{status.st_mtime_ns:x}-{status.st_size:x}"'


def _wanted(header: str | None, size: int) -> tuple[int, int] | None:
    """The one range asked for, as start and end; None for the whole file. Raises Problem 416.

    Several ranges, and other units than bytes, are answered with the whole file, as the standard allows.
    """
    match = _RANGE.fullmatch(header.strip()) if header is not None else None
    if match is None or match.group() == "bytes=-":
        return None
    first, last = match.groups()
    start = int(first) if first else max(size - int(last), 0)
    stop = min(int(last) + 1, size) if first and last else size
    if first and last and int(last) < int(first):
        return None  # not a range at all
    if start >= size or (not first and not int(last)):
        headers = {"Content-Range": f"bytes */{size}"}
        raise Problem(416, "RangeNotSatisfiable", f"the file has {size:,} bytes", headers)
    return start, stop


def _blocks(file: BinaryIO, left: int) -> Iterator[bytes]:
    with closing(file):
        while left > 0 and (block := file.read(min(_BLOCK, left))):
            left -= len(block)
            yield block


class _Outlet:
    """Where the ZIP is written: kept until it is sent, never sought in."""

    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, data: bytes) -> int:
        self._written += data
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def taken(self) -> bytes:
        data = bytes(self._written)
        self._written.clear()
        return data


def _zipped(root: FilePath, names: list[str]) -> Iterator[bytes]:
    outlet = _Outlet()
    target = cast(BinaryIO, outlet)  # a ZIP that is not sought in is only written and flushed
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in names:
            with suppress(NotFound, FileRejected):  # it went away, or was replaced by a link
                yield from _added(archive, outlet, open_file(root, name), name)
    yield outlet.taken()


def _added(archive: zipfile.ZipFile, outlet: _Outlet, file: BinaryIO, name: str) -> Iterator[bytes]:
    with closing(file):
        info = zipfile.ZipInfo(_printable(name), datetime.now(UTC).timetuple()[:6])
        info.compress_type = zipfile.ZIP_DEFLATED
        with archive.open(info, "w", force_zip64=True) as target:
            while block := file.read(_BLOCK):
                target.write(block)
                yield outlet.taken()


def _attachment(name: str) -> str:
    return f"attachment; filename*=UTF-8''{quote(_printable(name), safe='')}"


def _printable(name: str) -> str:
    """A name of any bytes as text that can be sent."""
    return name.encode(errors="surrogateescape").decode(errors="replace")
