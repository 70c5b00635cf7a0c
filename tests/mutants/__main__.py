"""`make mutants`: takes each guard away in a copy of the tree, and sees its tests turn red.

The tests are run without a mutation first, in a copy as well: they must be green. A mutant is red when each test that
is named for it fails; one that cannot be collected, or breaks in its set-up, shows nothing and counts as a hole.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.table import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
PACKAGES = ("jobs", "worker", "storage", "sostenuto")
LEFT_OUT = (
    ".git",
    ".venv",
    ".real-model",
    ".hypothesis",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    "*.egg-info",
)
LONGEST = 900.0  # seconds for one mutant's test; a test that hangs is failed by its own limit before
AT_ONCE = 2


def main() -> int:
    """Prints the table while it goes; 0 where every guard is red."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--only", default="", help="guards whose name contains this")
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    wanted = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if wanted.only in mutant.name]
    with tempfile.TemporaryDirectory(prefix="sostenuto-mutants-") as folder:
        base = Path(folder) / "base"
        copy_tree(ROOT, base)
        check_imports(base)
        if (problem := run_green(base, chosen)) is not None:
            print(f"not green without a mutation: {problem}")
            return 1
        with ThreadPoolExecutor(wanted.at_once) as pool:
            reds = list(pool.map(lambda mutant: report(mutant, base, Path(folder)), chosen))
    print(f"{len(chosen)} guards, {sum(reds)} red")
    return 0 if all(reds) else 1


def copy_tree(source: Path, target: Path) -> None:
    """The tree without what is made from it; compiled files come along, and stay valid for what is not changed."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)


def link_tree(source: Path, target: Path) -> None:
    """The same at once, for a tree of which one file is then replaced: the files are the source's own."""
    shutil.copytree(source, target, symlinks=True, copy_function=os.link)


def check_imports(tree: Path) -> None:
    """Fails unless Python, as the tests are run, imports the packages of this very tree."""
    program = f"import {', '.join(PACKAGES)}; print(*({', '.join(f'{name}.__file__' for name in PACKAGES)}))"
    files = _python(tree, "-c", program).stdout.split()
    foreign = [file for file in files if not Path(file).is_relative_to(tree.resolve())]
    if foreign or len(files) != len(PACKAGES):
        raise SystemExit(f"the copy is not what is imported: {files}")


def run_green(base: Path, chosen: list[Mutant]) -> str | None:
    """Runs every test once as it is; what was not green, else None."""
    tests = sorted({test for mutant in chosen for test in mutant.tests})
    began = time.monotonic()
    done = _pytest(base, *tests, limit=LONGEST * 5)
    print(f"without a mutation: {len(tests)} tests, {time.monotonic() - began:.0f} s", flush=True)
    return None if done.returncode == 0 else (done.stdout + done.stderr)[-4000:]


def mutate(tree: Path, mutant: Mutant) -> None:
    """Takes the guard away in this tree. Raises ValueError where the text is not there exactly once."""
    file = tree / mutant.file
    text = file.read_text()
    if (count := text.count(mutant.old)) != 1:
        raise ValueError(f"{mutant.name}: its text is {count} times in {mutant.file}")
    file.unlink()  # it may be another tree's as well
    file.write_text(text.replace(mutant.old, mutant.new))


def report(mutant: Mutant, base: Path, folder: Path) -> bool:
    """Tries one mutant in a tree of its own and prints its line."""
    began = time.monotonic()
    tree = Path(tempfile.mkdtemp(dir=folder)) / "tree"
    link_tree(base, tree)
    mutate(tree, mutant)
    said = "red"
    for test in mutant.tests:
        done = _pytest(tree, test, limit=LONGEST)
        if not _has_failed(done):
            said = "GREEN" if done.returncode == 0 else f"BROKEN ({done.returncode})"
            print(done.stdout[-2000:], done.stderr[-500:], flush=True)
            break
    shutil.rmtree(tree.parent, ignore_errors=True)
    print(f"{said:6} {time.monotonic() - began:5.0f} s  {mutant.name}", flush=True)
    return said == "red"


def _has_failed(done: subprocess.CompletedProcess[str]) -> bool:
    """A test failed: neither was it missing, nor did it break before it began, nor only take too long."""
    failed = any(line.startswith("FAILED ") for line in done.stdout.splitlines())
    return done.returncode == 1 and failed and "Timeout (>" not in done.stdout


def _pytest(tree: Path, *tests: str, limit: float) -> subprocess.CompletedProcess[str]:
    options = ("-q", "-rfE", "--tb=line", "-p", "no:cacheprovider", "--timeout", "600")
    return _python(tree, "-m", "pytest", *options, *tests, limit=limit)


def _python(tree: Path, *arguments: str, limit: float = LONGEST) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    environment.pop("FUZZ", None)
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )


if __name__ == "__main__":
    sys.exit(main())
