"""The demo's own data folder, and the environment in which its workers run."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jobs.errors import UsageError

EXAMPLE = Path(__file__).parents[2] / "examples" / "rainfall"
INPUTS = ("tokyo.csv", "heathrow.csv", "指示.txt")
MARKER = ".made-by-sostenuto-demo"
LEASE_SECONDS = 3

_CONFIGURATION = f"""\
# Made by `sostenuto demo`.
data_dir: .
model: scripted:script.yaml
lease_seconds: {LEASE_SECONDS}  # short, so that the demo is: 15 by default
sweep_seconds: 0.5
grace_seconds: 2
concurrency: 4
"""


@dataclass(frozen=True, slots=True)
class DemoModel:
    """Who answers: a real model of the user's, or the script. `note` tells why it is not the one half asked for."""

    name: str | None  # None: the demo's script
    note: str | None = None


def claim_folder(folder: Path) -> None:
    """Makes the folder, or takes that of an earlier demo. Raises UsageError for any other that is there."""
    if not EXAMPLE.is_dir():
        raise UsageError(
            f"the demo's example is not there: {EXAMPLE}", hint="run it from a checkout of the source"
        )
    marker = folder / MARKER
    ours = marker.is_file() and not folder.is_symlink()
    try:
        if not ours and (folder.is_symlink() or folder.exists()) and not _is_empty(folder):
            raise UsageError(
                f"{folder} is there already, and no demo made it",
                hint="move it away, or name another folder with --dir",
            )
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        marker.touch()
    except OSError as error:
        reason = (error.strerror or "it cannot be used").lower()
        raise UsageError(
            f"{error.filename or folder}: {reason}", hint="name another one with --dir"
        ) from error


def fill_folder(folder: Path) -> None:
    """Empties what an earlier demo left, and puts in what this one needs. Only while nobody works in it.

    `run/` stays: it holds the lock of the present owner, and the traces of a broker that may still run.
    """
    for entry in folder.iterdir():
        if entry.name in {MARKER, "run"}:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    (folder / "pieces").mkdir()
    shutil.copyfile(EXAMPLE / "piece.yaml", folder / "pieces" / "rainfall.yaml")
    shutil.copyfile(EXAMPLE / "script.yaml", folder / "script.yaml")
    (folder / "sostenuto.yaml").write_text(_CONFIGURATION)


def choose_model(environ: Mapping[str, str]) -> DemoModel:
    """The user's model, where the environment names one and says how to reach it."""
    name = environ.get("SOSTENUTO_MODEL")
    if name and name.startswith("scripted:"):
        name = None  # a script for other jobs: it has no replies to this one
    reachable = environ.get("OPENAI_API_KEY") or environ.get("OPENAI_BASE_URL")
    if name and reachable:
        return DemoModel(name)
    if name:
        return DemoModel(None, "SOSTENUTO_MODEL is set, but neither OPENAI_API_KEY nor OPENAI_BASE_URL")
    if reachable:
        return DemoModel(None, "an endpoint is set, but SOSTENUTO_MODEL names no model")
    return DemoModel(None)


def demo_environment(folder: Path, model: DemoModel, environ: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment with the demo's settings instead of the caller's."""
    environment = {name: value for name, value in environ.items() if not name.startswith("SOSTENUTO_")}
    environment["SOSTENUTO_CONFIG"] = str(folder / "sostenuto.yaml")
    if model.name is not None:
        environment["SOSTENUTO_MODEL"] = model.name
    else:
        # The script's own commands are harmless, so the demo also runs where no sandbox works.
        environment["SOSTENUTO_ALLOW_UNSANDBOXED"] = "true"
    return environment


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink() and next(folder.iterdir(), None) is None
