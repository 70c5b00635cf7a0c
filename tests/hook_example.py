"""The example package of a hook, made importable as an installed one is, in a fraction of an installer's time."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "examples" / "hook_package"


def install_example(folder: Path) -> None:
    """Into a folder for PYTHONPATH: the package's modules, and what installers write of its entry points."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())
    about = project["project"]
    for module in project["tool"]["setuptools"]["py-modules"]:
        shutil.copy(PACKAGE / f"{module}.py", folder)
    info = folder / f"{about['name'].replace('-', '_')}-{about['version']}.dist-info"
    info.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: {about['version']}\n"
    (info / "METADATA").write_text(metadata)
    lines = []
    for group, entries in about["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
