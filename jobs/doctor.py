"""What of an installation works and what is unsafe, each finding with what to do about it."""

from __future__ import annotations

import json
import os
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
from typing import Any

from jobs.broker import answers
from jobs.errors import SostenutoError
from jobs.installation import broker_url
from jobs.listening import knock, listening_addresses, open_flower_routes, reaches_others
from jobs.secret_files import SUFFIX, exposure
from jobs.settings import MEGABYTE, Settings
from jobs.settings_sources import FROM_FILES
from storage import migrate, registry
from storage.engine import Database
from storage.masking import SHORTEST

CHILD_SECONDS = 60

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


def examine(
    settings: Settings, *, web_port: int, flower_port: int, ask_model: bool = False
) -> Iterator[Finding]:
    """All findings, in the order in which one would mend them. Changes nothing; takes a few seconds at most, and with
    `ask_model` as long as the model takes for a word."""
    names = (
        "sostenuto",
        "celery",
        "kombu",
        "redis",
        "sqlalchemy",
        "psycopg",
        "pydantic",
        "fastapi",
        "openai",
        "mcp",
    )
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    yield Finding("versions", Verdict.OK, f"{versions}, python {sys.version.split()[0]}")
    yield from _data_folder(settings)
    yield from _database(settings)
    yield _broker(settings)
    yield from _web(web_port)
    yield from _flower(flower_port)
    yield _model(settings, ask=ask_model)
    yield from _secrets(settings)
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
            found = migrate.current(db)
            workers = registry.live_workers(db, FRESH_SECONDS)
    except SostenutoError as error:
        yield Finding(
            "database", Verdict.BAD, str(error), error.hint or "start it, or mend SOSTENUTO_DATABASE_URL"
        )
        return
    schema = "with this program's schema"
    if found != migrate.head():
        schema = f"at revision {found}, of a newer program, which lets this one work on"
    yield Finding("database", Verdict.OK, f"it answers, {schema}")
    if not workers:
        yield Finding("workers", Verdict.WARNING, "none runs", "start one: sostenuto worker, or sostenuto up")
    for worker in workers:
        name, problems = f"worker {worker['name']}", worker["problems"] or []
        if "UNSANDBOXED" in worker["sandbox"]:
            hint = "install bubblewrap, and unset SOSTENUTO_ALLOW_UNSANDBOXED"
            yield Finding(name, Verdict.BAD, worker["sandbox"], hint)
        elif worker["drain_requested_at"] is not None:
            hint = "it leaves when its jobs' steps have ended; start another one in its place"
            yield Finding(name, Verdict.WARNING, "draining: it takes no more jobs", hint)
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


def _web(port: int) -> Iterator[Finding]:
    gate = knock(port)
    if gate is None:
        yield Finding(
            "web", Verdict.OK, f"no server answers at port {port} (look at another one with --web-port)"
        )
        return
    if not gate.is_sostenuto:
        yield Finding("web", Verdict.OK, f"what answers at port {port} is another program")
        return
    if gate.open_routes:
        told = f"it answers a stranger at port {port}: {', '.join(gate.open_routes)}"
        yield Finding("web auth", Verdict.BAD, told, "stop it, and see what was put before sostenuto web")
    else:
        yield Finding("web auth", Verdict.OK, "strangers and foreign host names are refused")
    yield _bind("web", port)


def _bind(name: str, port: int) -> Finding:
    remote = [address for address in listening_addresses(port) or () if reaches_others(address)]
    if not remote:
        return Finding(f"{name} bind", Verdict.OK, f"it listens on this machine alone, port {port}")
    hint = "stop it and start it without --host, behind a proxy with TLS where others are to reach it"
    told = f"it listens at {', '.join(remote)}, port {port}, where other machines reach it in plain HTTP"
    return Finding(f"{name} bind", Verdict.BAD, told, hint)


def _flower(port: int) -> Iterator[Finding]:
    shown = open_flower_routes(port)
    if shown is None:
        yield Finding("flower", Verdict.OK, f"none answers at port {port} (another one: --flower-port)")
        return
    if shown:
        told = f"it answers a stranger at port {port}: {', '.join(shown)}"
        yield Finding("flower auth", Verdict.BAD, told, "stop it, and start it with: sostenuto flower")
    else:
        yield Finding("flower auth", Verdict.OK, "strangers are refused")
    yield _bind("flower", port)


def _model(settings: Settings, *, ask: bool) -> Finding:
    if settings.model is None:
        return Finding("model", Verdict.WARNING, "none is configured", "set SOSTENUTO_MODEL")
    if not ask:
        return Finding("model", Verdict.OK, f"{settings.model} (not asked; --ask-model does)")
    told = _told_by("worker.model", settings.model_total_timeout + CHILD_SECONDS)
    if isinstance(told, str):
        return Finding("model", Verdict.BAD, f"it could not be asked: {told}", "sostenuto worker tells more")
    verdict = {None: Verdict.OK, "capability": Verdict.WARNING, "rate_limit": Verdict.WARNING}.get(
        told["kind"]
    )
    return Finding("model", verdict or Verdict.BAD, f"{settings.model}: {told['text']}", told["hint"])


def _told_by(module: str, seconds: float) -> dict[str, Any] | str:
    """What a module of the worker's tells in one line of JSON; a text where it told nothing.

    As a process: the worker's part is not imported here, and is tried from a process like a worker's.
    """
    command = [sys.executable, "-P", "-m", module]
    try:
        ran = subprocess.run(command, capture_output=True, timeout=seconds, check=True)
        told: dict[str, Any] = json.loads(ran.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return type(error).__name__
    return told


def _secrets(settings: Settings) -> Iterator[Finding]:
    short = sum(len(secret) < SHORTEST for secret in settings.secrets())
    if short:
        told = f"{short} configured key(s) or password(s) under {SHORTEST} characters: too short to be masked"
        yield Finding("secrets", Verdict.WARNING, told, "choose longer ones")
    for name in _secret_names(settings):
        file = os.environ.get(name + SUFFIX)
        try:
            open_to = exposure(Path(file)) if file and not os.environ.get(name) else None
        except OSError as error:
            told = f"{name}{SUFFIX}: {(error.strerror or 'cannot be read').lower()}"
            yield Finding("secret files", Verdict.BAD, told, "make the file, or mend the variable")
            continue
        if open_to:
            verdict = Verdict.BAD if open_to == "write" else Verdict.WARNING
            told = f"every user of this machine may {open_to} the file of {name}{SUFFIX}"
            yield Finding("secret files", verdict, told, f"chmod 600 {file}")


def _secret_names(settings: Settings) -> list[str]:
    """The variables in whose place a file may be named."""
    endpoints = {endpoint.api_key_env for endpoint in settings.endpoints.values() if endpoint.api_key_env}
    servers = {name for server in settings.mcp.values() for name in server.variables()}
    return [*FROM_FILES, *sorted(endpoints | servers)]


def _sandbox() -> Finding:
    told = _told_by("worker.sandbox", CHILD_SECONDS)
    if isinstance(told, str):
        return Finding(
            "sandbox", Verdict.BAD, f"it could not be tried: {told}", "sostenuto worker tells more"
        )
    verdict = {"bwrap": Verdict.OK, "none": Verdict.BAD}.get(told["level"], Verdict.WARNING)
    hint = {
        "none": "unset SOSTENUTO_ALLOW_UNSANDBOXED",
        "landlock": "install bubblewrap and allow user namespaces for the stronger level",
    }
    return Finding("sandbox", verdict, told["description"], told["hint"] or hint.get(told["level"]))
