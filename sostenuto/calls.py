"""What the API can be asked: each request described once, for both clients."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx2

from sostenuto.downloads import MemorySink, downloaded, fetched, target_of
from sostenuto.errors import (
    NotFound,
    SostenutoError,
    Unavailable,
    UnexpectedAnswer,
    WaitTimeout,
    error_of,
)
from sostenuto.flows import (
    Flow,
    Item,
    NextEvent,
    Open,
    Patience,
    Reply,
    Request,
    Sleep,
    answered,
    connection_failed,
)
from sostenuto.records import Budget, Comment, Event, File, Job, record
from sostenuto.uploads import Files, Source, file_body, form_body, json_body, named_files

Record = TypeVar("Record")
JobOrId = Job | str
FileOrPath = File | str
_FIRST_LOOK, _LONGEST_LOOK = 0.1, 1.0  # seconds between looks at a job that is waited for
_LASTING = 5.0  # a stream that lived so long was a good one: the next failure is a first one


def submit(
    retries: int, instruction: str, files: Files, idempotency_key: str | None, given: Mapping[str, Any]
) -> Flow[Job]:
    """The key makes it safe to repeat: one is made where none is given."""
    document = {"instruction": instruction}
    document |= {name: _plain(value) for name, value in given.items() if value is not None}
    named = named_files(files)
    body = form_body(document, named) if named else json_body(document)
    headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
    request = Request("POST", "/api/jobs", headers=headers, body=body, idempotent=True)
    return record(Job, (yield from answered(request, retries)).json())


def one(retries: int, job: JobOrId) -> Flow[Job]:
    return record(Job, (yield from answered(_get(_at(job)), retries)).json())


def act(retries: int, job: JobOrId, action: str, document: Mapping[str, Any] | None = None) -> Flow[Job]:
    """Something done to the job, which is not repeated when it may have been done."""
    return record(Job, (yield from _posted(retries, job, action, document)).json())


def bulk(retries: int, action: str, jobs: Iterable[JobOrId]) -> Flow[list[dict[str, Any]]]:
    """One action on many jobs, which is not repeated when it may have been done."""
    body = json_body({"action": action, "ids": [id_of(job) for job in jobs]})
    told = (yield from answered(Request("POST", "/api/jobs/bulk", body=body), retries)).json()
    return [dict(result) for result in told["results"]]


def say(retries: int, job: JobOrId, how: str, text: str) -> Flow[Comment]:
    return record(Comment, (yield from _posted(retries, job, how, {"text": text})).json())


def listed(
    retries: int,
    kind: type[Record],
    path: str,
    params: Mapping[str, str | int | Iterable[str] | None] | None = None,
) -> Flow[None]:
    """Each item of a list, page after page, as it is when its page is asked for."""
    following: str | None = path
    pairs = _pairs(params or {})
    while following is not None:
        page = (yield from answered(_get(following, pairs), retries)).json()
        if not isinstance(page, dict) or not isinstance(page.get("items"), list):
            raise UnexpectedAnswer("a list without items")
        for item in page["items"]:
            yield Item(record(kind, item))
        following, pairs = page.get("next"), []
        if following is not None:
            following = own(following)


def of_job(
    retries: int, job: JobOrId, what: str, kind: type[Record], params: Mapping[str, Any] | None = None
) -> Flow[None]:
    return listed(retries, kind, f"{_at(job)}/{what}", params)


def documents(retries: int, job: JobOrId, what: str) -> Flow[list[dict[str, Any]]]:
    """A short list whose items this client has no record for."""
    page = (yield from answered(_get(f"{_at(job)}/{what}"), retries)).json()
    return [dict(item) for item in page["items"]]


def readiness(retries: int) -> Flow[dict[str, str]]:
    found: dict[str, str] = (yield from answered(_get("/readyz"), retries)).json()
    return found


def wait(retries: int, job: JobOrId, timeout: float | None, until: Callable[[Job], bool] | None) -> Flow[Job]:
    wanted = until or (lambda found: found.ended or found.needs_someone)
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = _FIRST_LOOK
    tag = ""
    found: Job | None = None
    while True:
        reply = yield from answered(_get(_at(job), headers={"If-None-Match": tag} if tag else {}), retries)
        if reply.status != 304 or found is None:
            tag = reply.headers.get("etag", "")
            found = record(Job, reply.json())
            if wanted(found):
                return found
        left = pause if deadline is None else deadline - time.monotonic()
        if left <= 0:
            raise WaitTimeout(found, timeout or 0)
        yield Sleep(min(pause, left))
        pause = min(pause * 1.5, _LONGEST_LOOK)


def events(retries: int, job: JobOrId, after: str | None) -> Flow[None]:
    """Events until the end of the job, through as many connections as it takes."""
    place = after
    patience = Patience(retries)
    while True:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": place} if place else {})
        began = time.monotonic()
        try:
            stream = Request("GET", f"{_at(job)}/events", headers=headers, idempotent=True, endless=True)
            reply: Reply = yield Open(stream)
            if reply.status != 200:
                raise error_of(reply.status, reply.headers, reply.content)
            while (sent := (yield NextEvent())) is not None:
                event = _event(sent)
                place = event.id or place
                patience.renewed()
                yield Item(event)
                if event.kind == "end":
                    return
            failure: SostenutoError = Unavailable("the stream ended before the job did")
        except httpx2.TransportError as error:
            failure = connection_failed(error)
        except Unavailable as error:
            failure = error
        if time.monotonic() - began > _LASTING:
            patience.renewed()
        yield from patience.after(failure)


def _event(sent: httpx2.ServerSentEvent) -> Event:
    try:
        data = json.loads(sent.data)
    except ValueError:
        raise UnexpectedAnswer("an event whose data is not JSON") from None
    return Event(id=sent.id, kind=sent.event, data=data)


def read(retries: int, job: JobOrId, file: FileOrPath, limit: int) -> Flow[bytes]:
    sink = MemorySink(limit)
    yield from fetched(_file_at(job, file), sink, retries)
    return bytes(sink.content)


def download(retries: int, job: JobOrId, file: FileOrPath, to: str | PathLike[str]) -> Flow[Path]:
    name = file.path if isinstance(file, File) else file
    return (yield from downloaded(_file_at(job, file), target_of(to, name), retries))


def download_workspace(retries: int, job: JobOrId, to: str | PathLike[str]) -> Flow[Path]:
    target = target_of(to, f"{id_of(job)}.zip")
    return (yield from downloaded(f"{_at(job)}/workspace.zip", target, retries))


def upload(retries: int, job: JobOrId, path: str, source: Source) -> Flow[int]:
    """Putting is idempotent: the whole file is there afterwards, or the one that was there before."""
    request = Request("PUT", _file_at(job, path), body=file_body(source), idempotent=True)
    return int((yield from answered(request, retries)).json()["size"])


def id_of(job: JobOrId | None) -> str | None:
    return job.id if isinstance(job, Job) else job


def own(url: str) -> str:
    """A URL that the server named, which must be a path of its own: elsewhere the token would be given away."""
    if not url.startswith("/api/"):
        raise UnexpectedAnswer("the server named a page elsewhere")
    return url


def _at(job: JobOrId) -> str:
    job_id = id_of(job)
    if job_id in (None, "", ".", ".."):
        raise NotFound(f"there is no job {job_id!r}")
    return f"/api/jobs/{quote(str(job_id), safe='')}"


def _file_at(job: JobOrId, file: FileOrPath) -> str:
    if isinstance(file, File):
        return own(file.url)
    segments = file.split("/")
    if "." in segments or ".." in segments or "" in segments:
        raise NotFound(f"{file!r} is no path in a workspace", hint="such as output/report.md")
    return f"{_at(job)}/files/{quote(file, errors='surrogateescape')}"


def _get(
    path: str, params: Iterable[tuple[str, str]] = (), headers: Mapping[str, str] | None = None
) -> Request:
    return Request("GET", path, params=tuple(params), headers=headers or {}, idempotent=True)


def _posted(
    retries: int, job: JobOrId, action: str, document: Mapping[str, Any] | None = None
) -> Flow[Reply]:
    body = None if document is None else json_body(document)
    return answered(Request("POST", f"{_at(job)}/{action}", body=body), retries)


def _pairs(params: Mapping[str, str | int | Iterable[str] | None]) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name, value in params.items():
        if isinstance(value, (str, int)):
            pairs.append((name, str(value)))
        elif value is not None:
            pairs.extend((name, item) for item in value)
    return pairs


def _plain(value: Any) -> Any:
    if isinstance(value, Budget):
        return value.as_json()
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError("a time needs a zone: datetime.now(UTC) + …")
        return value.isoformat()
    return value
