"""Commands that a person can paste as they are printed."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

# What decides which installation a command works on.
_PLACE = ("SOSTENUTO_CONFIG", "SOSTENUTO_DATA_DIR", "SOSTENUTO_DATABASE_URL", "SOSTENUTO_BROKER_URL")
_SECRET = tuple(  # they may hold a password, or tell where one lies: named, never shown
    f"SOSTENUTO_{server}_{what}{file}"
    for server in ("DATABASE", "BROKER")
    for what in ("URL", "PASSWORD")
    for file in ("", "_FILE")
)


def program() -> str:
    """How this program is called from here: by its name where PATH finds it, else by the path of this very one."""
    ours = Path(sys.argv[0]).absolute()
    found = shutil.which("sostenuto")
    if found is not None and Path(found).resolve() == ours.resolve():
        return "sostenuto"
    return shlex.quote(short_path(ours))


def command(arguments: str, environment: Mapping[str, str]) -> str:
    """One line for a shell in the current folder: what `environment` sets, this program, its arguments."""
    settings = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    return " ".join([*settings, program(), arguments])


def shown_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What another terminal must also set to reach the same installation, as far as it may be shown."""
    return {name: environ[name] for name in _PLACE if environ.get(name) and name not in _SECRET}


def hidden_environment(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Names of further variables that another terminal must set."""
    return [name for name in _SECRET if environ.get(name)]


def short_path(path: Path) -> str:
    """The path as it is typed from the current folder: relative below it or one above, else absolute."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("../..") else relative
