"""Keeping what was sent to models and what came back, for a while: for the page, and for reports of faults.

Calls only leave their pieces here; a thread of its own masks, packs and writes them. What it cannot keep up with, and
what the disk does not take, is lost: no job ever waits for it or fails by it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from jobs.exchanges import (
    CHAIN_SHARE,
    SUFFIX,
    clear_exchanges,
    exchange_files,
    exchanges_folder,
    file_name,
    read_exchange,
)
from jobs.settings import Settings
from storage.errors import SostenutoError
from storage.masking import holds_secret, mask, register_secrets
from storage.text import valid_json
from worker.model.errors import ModelError
from worker.model.types import ModelReply, ModelRequest

log = logging.getLogger(__name__)

DAY = 86_400.0
MOST_WAITING = 200  # exchanges; more are not kept
GATHER_SECONDS = (
    0.1  # between two looks: a thread that woke for each call would take the interpreter from the runs
)
MOST_MESSAGE = 256 * 1024  # characters of one message's text that are kept
CLEAR_SECONDS = 600.0
COMPLAIN_SECONDS = 60.0  # one line in the log for all failures of this time
REMEMBERED_JOBS = 64  # whose last request is held in memory
WITHHELD = "[withheld: a secret stood in it in pieces]"
_HEADERS = (
    "content-type",
    "retry-after",
    "x-request-id",
    "request-id",
    "openai-processing-ms",
    "server",
    "date",
)


class CallTape:
    """What goes over the wire in one call. Its methods run on the model loop's thread and cost next to nothing."""

    def __init__(self, keeper: ExchangeKeeper, request: ModelRequest, endpoint: str, most: int) -> None:
        self.request = request
        self.endpoint = endpoint
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.chunks: list[bytes] = []
        self.is_cut = False
        self.reply: ModelReply | None = None
        self.error: Exception | None = None
        self.at = time.time()
        self.seconds = 0.0
        self._began = time.monotonic()
        self._keeper = keeper
        self._room = most

    def sent(self, body: bytes) -> None:
        """The body is made anew from the messages: that costs the loop nothing."""

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        self.headers = {name: headers[name] for name in _HEADERS if name in headers}

    def received(self, chunk: bytes) -> None:
        if len(chunk) > self._room:
            chunk, self.is_cut = chunk[: self._room], True
        if chunk:
            self.chunks.append(chunk)
            self._room -= len(chunk)

    def end(self, reply: ModelReply | None, error: Exception | None) -> None:
        """The call is over: it is left to the writer."""
        self.seconds = round(time.monotonic() - self._began, 3)
        self.reply, self.error = reply, error
        self._keeper.leave(self)


@dataclass(slots=True)
class _Kept:
    """The last exchange of a job, on which the next one builds."""

    seq: int
    messages: list[Any]
    rest: dict[str, Any]
    chain_began: float
    bytes_written: int = 0
    is_full: bool = field(default=False)


class ExchangeKeeper:
    """Writes the exchanges of one worker process, on a thread that the first one starts."""

    def __init__(self, settings: Settings) -> None:
        register_secrets(settings.secrets())
        self._settings = settings
        self._keep_seconds = settings.exchanges.keep_days * DAY
        self._queue: queue.SimpleQueue[CallTape | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._cleared_at: float | None = None
        self._complained_at: float | None = None

    def tape(self, request: ModelRequest, endpoint: str) -> CallTape | None:
        """A tape for one call; None where nothing is to be kept."""
        if not self._keep_seconds:
            return None
        return CallTape(self, request, endpoint, self._settings.exchanges.max_bytes)

    def leave(self, tape: CallTape) -> None:
        """Takes a call that is over. Never blocks."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="exchanges", daemon=True)
                self._thread.start()
        if self._queue.qsize() < MOST_WAITING:
            self._queue.put(tape)

    def close(self, timeout: float = 2.0) -> None:
        """Writes what is waiting, as far as the time allows."""
        with self._lock:
            thread = self._thread
        if thread is not None and thread.is_alive():
            self._queue.put(None)
            self._closing.set()
            thread.join(timeout)

    def _work(self) -> None:
        while True:
            self._clear_now_and_then()
            if self._queue.empty():
                self._closing.wait(GATHER_SECONDS)
            try:
                tape = self._queue.get(timeout=CLEAR_SECONDS)
            except queue.Empty:
                continue
            if tape is None:
                with self._lock:
                    self._thread = None
                    self._closing.clear()
                return
            try:
                self._write(tape)
            except Exception as error:  # noqa: BLE001 - nothing here may reach a job or end the thread
                self._complain(error)

    def _clear_now_and_then(self) -> None:
        now = time.monotonic()
        if self._cleared_at is None or now - self._cleared_at >= CLEAR_SECONDS:
            self._cleared_at = now
            settings = self._settings
            clear_exchanges(settings.data_dir, self._keep_seconds, settings.exchanges.max_total_bytes)

    def _complain(self, error: Exception) -> None:
        now = time.monotonic()
        if self._complained_at is None or now - self._complained_at >= COMPLAIN_SECONDS:
            self._complained_at = now
            log.warning("cannot keep exchanges with the model: %s: %s", type(error).__name__, error)

    # --- one exchange ---

    def _write(self, tape: CallTape) -> None:
        job_id = tape.request.label.partition("/")[0]
        folder = exchanges_folder(self._settings.data_dir, job_id)
        kept = self._last(job_id)
        if kept is not None and kept.is_full:
            return
        messages = [_bounded(message) for message in tape.request.messages]
        rest = _rest(tape.request)
        data = self._described(tape)
        seq = 1 if kept is None else kept.seq + 1
        folding, chain_began = self._folded(kept, messages, rest, tape.at)
        text = self._masked({**data, "seq": seq, "request": folding}, tape)
        packed = zlib.compress(text.encode("utf-8", "replace"), 6)
        _write_whole(f"{folder}/", file_name(seq), packed)
        written = len(packed) + (0 if kept is None else kept.bytes_written)
        self._remember(
            job_id,
            _Kept(
                seq,
                messages,
                rest,
                chain_began,
                written,
                is_full=written >= self._settings.exchanges.max_job_bytes,
            ),
        )

    def _last(self, job_id: str) -> _Kept | None:
        """The job's exchange before this one, from the disk where another process had it."""
        if job_id in self._kept:
            self._kept.move_to_end(job_id)
            return self._kept[job_id]
        data_dir = self._settings.data_dir
        files = exchange_files(data_dir, job_id)
        if not files:
            return None
        size = sum(file.path.stat().st_size for file in files)
        is_full = size >= self._settings.exchanges.max_job_bytes
        # Masked messages would not be equal to those in hand: the next request is kept whole.
        last = _Kept(files[-1].seq, [], {}, 0.0, size, is_full)
        with contextlib.suppress(SostenutoError):
            found = read_exchange(data_dir, job_id, files[-1].seq)
            if not found["incomplete"]:
                request = dict(found["request"])
                last.messages, last.rest = request.pop("messages"), request
                last.chain_began = files[0].path.stat().st_mtime
        return last

    def _folded(
        self, kept: _Kept | None, messages: list[Any], rest: dict[str, Any], now: float
    ) -> tuple[dict[str, Any], float]:
        """The request against the one before; whole where it has nothing in common with it, or the chain is old."""
        common = 0
        if kept is not None and now - kept.chain_began < self._keep_seconds * CHAIN_SHARE:
            for before, after in zip(kept.messages, messages, strict=False):
                if before != after:
                    break
                common += 1
        if kept is None or not common:
            return {"base": None, "kept": 0, "messages": messages, "rest": rest}, now
        same = {"rest": None} if kept.rest == rest else {"rest": rest}
        return {"base": kept.seq, "kept": common, "messages": messages[common:], **same}, kept.chain_began

    def _described(self, tape: CallTape) -> dict[str, Any]:
        error = tape.error
        kind = str(error.kind) if isinstance(error, ModelError) else type(error).__name__
        return {
            "at": tape.at,
            "step": tape.request.step,
            "label": tape.request.label,
            "model": tape.request.model,
            "endpoint": tape.endpoint,
            "status": tape.status,
            "outcome": "reply" if error is None else kind,
            "error": None if error is None else str(error),
            "seconds": tape.seconds,
            "usage": None if tape.reply is None else asdict(tape.reply.usage),
            "headers": tape.headers,
            "response": b"".join(tape.chunks).decode("utf-8", "replace"),
            "response_cut": tape.is_cut,
        }

    def _masked(self, data: dict[str, Any], tape: CallTape) -> str:
        """As JSON, no secret in it: whole, encoded, or cut into a stream's pieces."""
        reply = tape.reply
        if reply is not None:
            said = "\n".join(
                [
                    reply.content or "",
                    reply.refusal or "",
                    json.dumps(reply.reasoning or {}, ensure_ascii=False),
                ]
                + [f"{call.name} {call.arguments}" for call in reply.tool_calls]
            )
            if holds_secret(said):
                data = {**data, "response": f"{WITHHELD}\n{mask(said)}"}
        if reply is None and holds_secret(_spoken(data["response"])):
            data = {**data, "response": WITHHELD}
        return mask(json.dumps(valid_json(data), ensure_ascii=False, default=str))

    def _remember(self, job_id: str, kept: _Kept) -> None:
        self._kept[job_id] = kept
        while len(self._kept) > REMEMBERED_JOBS:
            self._kept.popitem(last=False)


def _spoken(stream: str) -> str:
    """What the deltas of a broken stream say one after the other, found without understanding them."""
    said = []
    for line in stream.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            said += list(_texts(json.loads(line.removeprefix("data:").strip())))
    return "".join(said)


def _texts(value: Any, key: str = "") -> list[str]:
    if isinstance(value, str):
        return (
            [value]
            if key in ("content", "arguments", "reasoning_content", "reasoning", "refusal", "text")
            else []
        )
    if isinstance(value, dict):
        return [text for name, item in value.items() for text in _texts(item, name)]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item, key)]
    return []


def _rest(request: ModelRequest) -> dict[str, Any]:
    rules = request.rules
    rest: dict[str, Any] = {"model": request.model, "stream": rules.streaming, **(rules.parameters or {})}
    if request.tools:
        rest["tools"] = request.tools
    if request.max_output_tokens is not None:
        rest[rules.limit_field] = request.max_output_tokens
    return rest


def _bounded(message: dict[str, Any]) -> dict[str, Any]:
    """The message without what would fill the disk: images, and the middle of endless texts."""
    content = message.get("content")
    if isinstance(content, str) and len(content) > MOST_MESSAGE:
        return {**message, "content": _shortened(content)}
    if isinstance(content, list):
        return {**message, "content": [_bounded_part(part) for part in content]}
    return message


def _bounded_part(part: Any) -> Any:
    if isinstance(part, dict) and part.get("type") == "image_url":
        url = str((part.get("image_url") or {}).get("url", ""))
        return {"type": "image_url", "image_url": {"url": f"{url[:40]}… ({len(url):,} characters)"}}
    if isinstance(part, dict) and isinstance(part.get("text"), str) and len(part["text"]) > MOST_MESSAGE:
        return {**part, "text": _shortened(part["text"])}
    return part


def _shortened(text: str) -> str:
    half = MOST_MESSAGE // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters are not kept …]\n{text[-half:]}"


def _write_whole(folder: str, name: str, data: bytes) -> None:
    """The file with all its bytes, or no file; its folder is made where there is none. `folder` ends with a slash."""
    partial = f"{folder}.{name.removesuffix(SUFFIX)}.{os.getpid()}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        descriptor = os.open(partial, flags, 0o600)
    except FileNotFoundError:
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(partial, flags, 0o600)
    try:
        with open(descriptor, "wb", buffering=0) as file:  # noqa: PTH123 - a descriptor, not a path
            file.write(data)
        os.replace(partial, folder + name)  # noqa: PTH105 - once for each call of a model: pathlib costs as much again
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(partial)  # noqa: PTH108 - the same
        raise
