"""What of an installation works and what is unsafe, each finding with what to do about it."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path

from jobs.broker import answers
from jobs.errors import SostenutoError
from jobs.installation import broker_url
from jobs.settings import MEGABYTE, Settings
from storage import migrate, registry
from storage.engine import Database

SANDBOX_SECONDS = 60
FRESH_SECONDS = 60.0
LITTLE_DISK, NO_DISK = 1024 * MEGABYTE, 100 * MEGABYTE


class Verdict(StrEnum):
    """`bad` alone makes the command fail: unsafe, or no job could run."""

    OK = "ok"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. `hint` says what to do; None where nothing is to be done."""

    name: str
    verdict: Verdict
    text: str
    hint: str | None = None


def examine(settings: Settings) -> Iterator[Finding]:
    """All findings, in the order in which one would mend them. Changes nothing; takes a few seconds at most."""
    names = ("sostenuto", "celery", "sqlalchemy", "pydantic")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    yield Finding("versions", Verdict.OK, f"{versions}, python {sys.version.split()[0]}")
    yield from _data_folder(settings)
    yield from _database(settings)
    yield _broker(settings)
    yield _model(settings)
    yield _sandbox()


def _data_folder(settings: Settings) -> Iterator[Finding]:
    folder = settings.data_dir
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if there == folder and folder.stat().st_mode & stat.S_IWOTH:
        yield Finding(
            "data folder", Verdict.BAD, f"every user may write into {folder}", f"chmod o-w {folder}"
        )
    free = shutil.disk_usage(there).free
    verdict = Verdict.BAD if free < NO_DISK else Verdict.WARNING if free < LITTLE_DISK else Verdict.OK
    hint = None if verdict is Verdict.OK else "free some, or move SOSTENUTO_DATA_DIR"
    yield Finding("disk", verdict, f"{free // MEGABYTE:,} MB free for {folder}", hint)


def _database(settings: Settings) -> Iterator[Finding]:
    file = Path(settings.database_url.removeprefix("sqlite:///"))
    if settings.uses_sqlite and not file.exists():
        yield Finding("database", Verdict.WARNING, f"{file} is not made yet", "the first command makes it")
        return
    try:
        with closing(Database(settings.database_url)) as db:
            migrate.check(db)
            workers = registry.live_workers(db, FRESH_SECONDS)
    except SostenutoError as error:
        yield Finding(
            "database", Verdict.BAD, str(error), error.hint or "start it, or mend SOSTENUTO_DATABASE_URL"
        )
        return
    yield Finding("database", Verdict.OK, "it answers, with this program's schema")
    if not workers:
        yield Finding("workers", Verdict.WARNING, "none runs", "start one: sostenuto worker, or sostenuto up")
    for worker in workers:
        name, problems = f"worker {worker['name']}", worker["problems"] or []
        if "UNSANDBOXED" in worker["sandbox"]:
            hint = "install bubblewrap, and unset SOSTENUTO_ALLOW_UNSANDBOXED"
            yield Finding(name, Verdict.BAD, worker["sandbox"], hint)
        else:
            yield Finding(name, Verdict.OK, f"sandbox {worker['sandbox']}")
        for problem in problems:
            yield Finding(
                name, Verdict.WARNING, problem, "mend its settings or packages, and restart the worker"
            )


def _broker(settings: Settings) -> Finding:
    if answers(broker_url(settings)):
        return Finding("broker", Verdict.OK, "something answers at its address")
    if settings.embedded_broker:
        return Finding("broker", Verdict.WARNING, "the embedded one does not run", "a worker starts it")
    return Finding(
        "broker",
        Verdict.BAD,
        "nothing answers at SOSTENUTO_BROKER_URL",
        "start it; jobs that were accepted wait in the database",
    )


def _model(settings: Settings) -> Finding:
    if settings.model is None:
        return Finding("model", Verdict.WARNING, "none is configured", "set SOSTENUTO_MODEL")
    return Finding("model", Verdict.OK, f"{settings.model} (not asked)")


def _sandbox() -> Finding:
    # As a process: the sandbox is the worker's part, and is proven from a process like a worker's.
    command = [sys.executable, "-P", "-m", "worker.sandbox"]
    try:
        ran = subprocess.run(command, capture_output=True, timeout=SANDBOX_SECONDS, check=True)
        told = json.loads(ran.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return Finding(
            "sandbox",
            Verdict.BAD,
            f"it could not be tried: {type(error).__name__}",
            "sostenuto worker tells more",
        )
    verdict = {"bwrap": Verdict.OK, "none": Verdict.BAD}.get(told["level"], Verdict.WARNING)
    hint = {
        "none": "unset SOSTENUTO_ALLOW_UNSANDBOXED",
        "landlock": "install bubblewrap for the stronger level",
    }
    return Finding("sandbox", verdict, told["description"], told["hint"] or hint.get(told["level"]))
