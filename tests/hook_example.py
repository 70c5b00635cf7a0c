"""The example packages, made importable as an installed one is, in a fraction of an installer's time."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def install_example(folder: Path, package: str = "hook_package") -> None:
    """Into a folder for PYTHONPATH: the package's modules, and what installers write of its entry points."""
    source = EXAMPLES / package
    project = tomllib.loads((source / "pyproject.toml").read_text())
    about = project["project"]
    for module in project["tool"]["setuptools"]["py-modules"]:
        shutil.copy(source / f"{module}.py", folder)
    info = folder / f"{about['name'].replace('-', '_')}-{about['version']}.dist-info"
    info.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: {about['version']}\n"
    (info / "METADATA").write_text(metadata)
    lines = []
    for group, entries in about["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
