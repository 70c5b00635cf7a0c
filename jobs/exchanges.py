"""What was sent to models and what came back, as kept for a while in the data folder: reading it and clearing it away.

    exchanges/JOB/000000012.json.z      one call: zlib over JSON, secrets masked before it was written

A request holds the messages that are new against an earlier one of its job (`base`), so that the folder grows with
the conversation and not with its square. Chains of bases are short in time: what is kept can be read whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.errors import NotFound
from jobs.workspace import workspace_path

SUFFIX = ".json.z"
MOST_BYTES = 256 * 1024 * 1024  # of one exchange, unpacked: a file that unpacks to more is not ours
CHAIN_SHARE = 0.25  # of the time for which exchanges are kept: so long later ones may build on one


@dataclass(frozen=True, slots=True)
class ExchangeFile:
    """One file of a job's folder."""

    seq: int
    path: Path


def exchanges_folder(data_dir: Path, job_id: str) -> Path:
    """Where a job's exchanges are. Raises FileRejected when the id cannot be one."""
    return data_dir / "exchanges" / workspace_path(data_dir, job_id).name


def exchange_files(data_dir: Path, job_id: str) -> list[ExchangeFile]:
    """The files that are there, oldest first."""
    found = []
    with contextlib.suppress(OSError):
        for path in exchanges_folder(data_dir, job_id).iterdir():
            name = path.name.removesuffix(SUFFIX)
            if path.name.endswith(SUFFIX) and name.isascii() and name.isdecimal():
                found.append(ExchangeFile(int(name), path))
    return sorted(found, key=lambda file: file.seq)


def file_name(seq: int) -> str:
    return f"{seq:09d}{SUFFIX}"


def list_exchanges(
    data_dir: Path, job_id: str, after: int = 0, limit: int | None = None
) -> list[dict[str, Any]]:
    """What is kept of the job's calls, without their bodies; those with a seq above `after`, oldest first."""
    files = [file for file in exchange_files(data_dir, job_id) if file.seq > after]
    return [_summary(data) for data in map(_load, files[:limit]) if data is not None]


def read_exchange(data_dir: Path, job_id: str, seq: int) -> dict[str, Any]:
    """One call with its whole request and response. Raises NotFound.

    `incomplete` is true where an earlier exchange, on which the request is built, is gone or cannot be read.
    """
    data = _load(ExchangeFile(seq, exchanges_folder(data_dir, job_id) / file_name(seq)))
    if data is None:
        raise NotFound(f"job {job_id} has no exchange {seq} (any more)")
    messages, rest, complete = _unfolded(data_dir, job_id, data)
    told = _summary(data) | {"request": {**rest, "messages": messages}, "incomplete": not complete}
    return told | {name: data.get(name) for name in ("headers", "response", "response_cut")}


def find_step(data_dir: Path, job_id: str, step: int) -> int:
    """The seq of a step's last exchange. Raises NotFound."""
    for file in reversed(exchange_files(data_dir, job_id)):
        data = _load(file)
        if data is not None and data.get("step") == step:
            return file.seq
    raise NotFound(f"no exchange of step {step} of job {job_id} is kept (any more)")


def _unfolded(data_dir: Path, job_id: str, data: dict[str, Any]) -> tuple[list[Any], dict[str, Any], bool]:
    """The request's messages and other members, put together from those it builds on."""
    wanted = None  # messages that are still to come from earlier files; None: all of them
    parts: list[list[Any]] = []
    rest: dict[str, Any] | None = None
    while True:
        request = data.get("request") or {}
        kept, new = int(request.get("kept") or 0), list(request.get("messages") or [])
        parts.append(new if wanted is None else new[: max(wanted - kept, 0)])
        wanted = kept if wanted is None else min(wanted, kept)
        rest = rest if rest is not None else request.get("rest")
        base = request.get("base")
        if base is None or (wanted == 0 and rest is not None):
            break
        earlier = _load(ExchangeFile(base, exchanges_folder(data_dir, job_id) / file_name(base)))
        if earlier is None or base >= data["seq"]:
            return [m for part in reversed(parts) for m in part], rest or {}, False
        data = earlier
    messages = [message for part in reversed(parts) for message in part]
    return messages, rest or {}, True


def _summary(data: dict[str, Any]) -> dict[str, Any]:
    names = (
        "seq",
        "at",
        "step",
        "label",
        "model",
        "endpoint",
        "status",
        "outcome",
        "error",
        "seconds",
        "usage",
    )
    return {name: data.get(name) for name in names}


def _load(file: ExchangeFile) -> dict[str, Any] | None:
    """The file's data; None where it is gone, half written or no exchange."""
    try:
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(file.path.read_bytes(), MOST_BYTES)
        data = json.loads(text) if unpacker.eof else None
    except (OSError, zlib.error, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) and data.get("seq") == file.seq else None


# --- clearing away ---


def clear_exchanges(data_dir: Path, keep_seconds: float, most_bytes: int, now: float | None = None) -> int:
    """Deletes what is too old, then the longest unused jobs' exchanges until the rest is small enough.

    Returns the number of files that were deleted. Whatever cannot be deleted stays for the next time.
    """
    now = time.time() if now is None else now
    oldest = now - keep_seconds * (1 + CHAIN_SHARE)
    deleted, total = 0, 0
    folders: list[tuple[float, int, Path]] = []
    for folder in _folders(data_dir):
        newest, size, gone = _clear_folder(folder, oldest)
        deleted += gone
        total += size
        folders.append((newest, size, folder))
    for _, size, folder in sorted(folders):
        if total <= most_bytes:
            break
        _, _, gone = _clear_folder(folder, float("inf"))
        deleted += gone
        total -= size
    return deleted


def forget_exchanges(data_dir: Path, job_id: str) -> None:
    """Deletes all that is kept of a job."""
    _clear_folder(exchanges_folder(data_dir, job_id), float("inf"))


def _folders(data_dir: Path) -> list[Path]:
    try:
        return [
            path for path in (data_dir / "exchanges").iterdir() if path.is_dir() and not path.is_symlink()
        ]
    except OSError:
        return []


def _clear_folder(folder: Path, oldest: float) -> tuple[float, int, int]:
    """Deletes the files from before `oldest`; returns the newest one's time, the bytes left, the number deleted."""
    newest, size, deleted = 0.0, 0, 0
    for entry in _entries(folder):
        with contextlib.suppress(OSError):
            status = entry.stat(follow_symlinks=False)
            if status.st_mtime < oldest:
                Path(entry.path).unlink()
                deleted += 1
            else:
                newest = max(newest, status.st_mtime)
                size += status.st_size
    with contextlib.suppress(OSError):
        folder.rmdir()  # fails where something is left
    return newest, size, deleted


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        yield from entries
