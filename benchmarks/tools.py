"""`python -m benchmarks.tools`: what a call of each tool costs, with and without a sandbox, at each level that works here.

The tools run as an agent's thread runs them, in one workspace. Read, Write, Edit, Glob and Grep need no sandbox: they
stand against the same work done in plain Python. Bash, ReadImage and ReadPdf start a child at the level's price; level
"none" is the same child without confinement. The calls of all levels take turns, so that other load hits all alike.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from pypdf import PdfWriter

from jobs.workspace import InputFile, create_workspace
from worker.cancel import CancelToken
from worker.sandbox.base import Caps, Sandbox, SandboxUnavailable
from worker.sandbox.bwrap import Bwrap
from worker.sandbox.landlock import Landlock, Unconfined
from worker.sandbox.probe import attack
from worker.tools.base import ToolContext
from worker.tools.catalogue import Catalogue, standard_tools
from worker.tools.dispatch import run_tool

ROUNDS = 30
FILES, LINES = 200, 500
LEVELS: dict[str, Callable[[Caps], Sandbox]] = {"none": Unconfined, "landlock": Landlock, "bwrap": Bwrap}
FREE = {
    "Read": {"path": "input/text.txt"},
    "Write": {"path": "output/new.txt", "content": "x" * 10_000},
    "Edit": {"path": "output/edited.txt", "old_string": "needle", "new_string": "noodle"},
    "Glob": {"pattern": "input/many/**"},
    "Grep": {"pattern": "nee+dle", "path": "input/many"},
}
SANDBOXED = {
    "Bash": {"command": "true"},
    "ReadImage": {"path": "input/image.png"},
    "ReadPdf": {"path": "input/document.pdf"},
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table; times in milliseconds."""

    tool: str
    way: str
    times: Sequence[float]
    base: float

    def text(self) -> str:
        median = statistics.median(self.times)
        low, high = statistics.quantiles(self.times, n=10)[0], statistics.quantiles(self.times, n=10)[-1]
        return f"{self.tool:10} {self.way:22} {median:9.2f} ms {median / self.base:7.2f} ×   ({low:.2f} to {high:.2f})"


def main() -> int:
    rounds = _rounds()
    with tempfile.TemporaryDirectory(prefix="sostenuto-bench-") as folder:
        workspace = _workspace(Path(folder))
        print(
            f"{'tool':10} {'way':22} {'median':>12} {'ratio':>9}   (10th to 90th percentile of {rounds} calls)"
        )
        for line in itertools.chain(free_tools(workspace, rounds), sandboxed_tools(workspace, rounds)):
            print(line.text(), flush=True)
    return 0


def _rounds() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="calls of each kind")
    return int(parser.parse_args().rounds)


def free_tools(workspace: Path, rounds: int) -> Iterator[Line]:
    """The tools that need no sandbox, each beside the same work in plain Python."""
    for tool, arguments in FREE.items():
        floor, calls = _taking_turns(
            [_plain(workspace, tool), _call(workspace, None, tool, arguments)], rounds
        )
        base = statistics.median(floor)
        yield Line(tool, "plain Python", floor, base)
        yield Line(tool, "the tool", calls, base)


def sandboxed_tools(workspace: Path, rounds: int) -> Iterator[Line]:
    """The tools that start a child, at each level that works here; their ratio is to level none."""
    sandboxes = _sandboxes()
    for tool, arguments in SANDBOXED.items():
        acts = [_call(workspace, sandbox, tool, arguments) for sandbox in sandboxes.values()]
        bare, *times = _taking_turns([_bare(workspace, tool), *acts], rounds)
        base = statistics.median(times[0])
        yield Line(tool, "plain Python" if tool != "Bash" else "plain subprocess", bare, base)
        for level, found in zip(sandboxes, times, strict=True):
            yield Line(tool, f"level {level}", found, base)


def _sandboxes() -> dict[str, Sandbox]:
    found: dict[str, Sandbox] = {}
    for level, make in LEVELS.items():
        try:
            sandbox = make(Caps())
            broken = [] if level == "none" else attack(sandbox)
        except SandboxUnavailable as error:
            print(f"level {level} does not work here: {error}", file=sys.stderr)
            continue
        if broken:
            print(f"level {level} does not hold here: {', '.join(broken)}", file=sys.stderr)
            continue
        found[level] = sandbox
    return found


def _taking_turns(acts: Sequence[Callable[[], object]], rounds: int) -> list[list[float]]:
    for act in acts:
        act()  # what is loaded once is not measured
    times: list[list[float]] = [[] for _ in acts]
    for _ in range(rounds):
        for act, taken in zip(acts, times, strict=True):
            began = time.perf_counter()
            act()
            taken.append((time.perf_counter() - began) * 1000)
    return times


def _call(
    workspace: Path, sandbox: Sandbox | None, tool: str, arguments: dict[str, str]
) -> Callable[[], object]:
    tools = Catalogue(standard_tools()).select(["*"], edit=True)
    context = ToolContext(workspace, CancelToken(), 20_000, "job", "call", sandbox, 60)
    there, back = json.dumps(arguments), json.dumps(_undone(arguments))
    texts = itertools.cycle((there, back))

    def act() -> object:
        result = run_tool(tool, next(texts), context, tools)
        if result.is_error:
            raise RuntimeError(result.content)
        return result

    return act


def _undone(arguments: dict[str, str]) -> dict[str, str]:
    """An edit is made and taken back in turn; everything else is the same each time."""
    swapped = {"old_string": "new_string", "new_string": "old_string"}
    return {name: arguments[swapped.get(name, name)] for name in arguments}


def _plain(workspace: Path, tool: str) -> Callable[[], object]:
    """The same work without any care."""
    text, edited = workspace / "input/text.txt", workspace / "output/edited.txt"
    many = workspace / "input/many"
    acts: dict[str, Callable[[], object]] = {
        "Read": lambda: text.read_text("utf-8"),
        "Write": lambda: (workspace / "output/plain.txt").write_text("x" * 10_000, "utf-8"),
        "Edit": lambda: edited.write_text(edited.read_text("utf-8").replace("lazy cat", "dog"), "utf-8"),
        "Glob": lambda: sorted(many.rglob("*")),
        "Grep": lambda: [
            line
            for file in sorted(many.iterdir())
            for line in file.read_text("utf-8").splitlines()
            if re.search("nee+dle", line)
        ],
    }
    return acts[tool]


def _bare(workspace: Path, tool: str) -> Callable[[], object]:
    """Without a child's confinement: the shell as a plain process, the file decoded in this process."""
    from pypdf import PdfReader

    def image() -> None:
        with Image.open(workspace / "input/image.png") as opened:
            opened.thumbnail((1568, 1568))
            opened.save(io.BytesIO(), "PNG")

    acts: dict[str, Callable[[], object]] = {
        "Bash": lambda: subprocess.run(["/bin/bash", "-c", "true"], check=True, capture_output=True),
        "ReadImage": image,
        "ReadPdf": lambda: [
            page.extract_text() for page in PdfReader(workspace / "input/document.pdf").pages
        ],
    }
    return acts[tool]


def _workspace(folder: Path) -> Path:
    line = "the quick brown fox jumps over the lazy dog\n"
    image, document = io.BytesIO(), io.BytesIO()
    Image.effect_noise((800, 600), 60).convert("RGB").save(image, "PNG")
    writer = PdfWriter()
    for _ in range(3):
        writer.add_blank_page(595, 842)
    writer.write(document)
    many = [
        InputFile(f"many/{at:03}.txt", (line * 20 + f"needle {at}\n" + line * 20).encode())
        for at in range(FILES)
    ]
    inputs = [InputFile("text.txt", (line * LINES).encode()), *many]
    inputs += [InputFile("image.png", image.getvalue()), InputFile("document.pdf", document.getvalue())]
    workspace = create_workspace(folder, "job-1", inputs)
    (workspace / "output/edited.txt").write_text(line * LINES + "needle\n" + line * LINES, "utf-8")
    return workspace


if __name__ == "__main__":
    sys.exit(main())
