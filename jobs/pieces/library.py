"""Where pieces come from: the user's folder first, then the built-in ones; and how one is chosen for a job."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jobs.errors import InvalidPiece, UnknownPiece
from jobs.pieces.loader import check_piece, load_piece
from jobs.pieces.model import Piece

BUILTIN_DIR = Path(__file__).parent / "builtin"
DEFAULT_PIECE = "general"
Origin = Literal["yours", "built-in"]
_NAME = re.compile(r"[a-z0-9-]{1,64}")


@dataclass(frozen=True, slots=True)
class PieceEntry:
    """One piece of the library; `piece` is None where it cannot be read, and `problems` say why."""

    name: str
    origin: Origin
    path: Path
    piece: Piece | None
    problems: list[InvalidPiece]


@dataclass(frozen=True, slots=True)
class Choice:
    """The piece of a new job, and why it was taken, in words."""

    piece: Piece
    reason: str


class Library:
    """The pieces of an installation. A user's piece hides the built-in one of the same name."""

    def __init__(self, pieces_dir: Path | None) -> None:
        self._folders: list[tuple[Origin, Path]] = [("built-in", BUILTIN_DIR)]
        if pieces_dir is not None:
            self._folders.insert(0, ("yours", pieces_dir))

    def entries(self) -> list[PieceEntry]:
        """Every piece by name, broken ones included."""
        return [_entry(name, origin, path) for name, (origin, path) in self._paths().items()]

    def names(self) -> list[str]:
        return list(self._paths())

    def get(self, name: str) -> Piece:
        """The piece of this name. Raises UnknownPiece, or InvalidPiece for its first problem."""
        return load_piece(self.path(name))

    def path(self, name: str) -> Path:
        """The file of a piece. Raises UnknownPiece; a name can never lead out of the folders."""
        found = self._paths().get(name) if _NAME.fullmatch(name) else None
        if found is None:
            raise UnknownPiece(name, self.names())
        return found[1]

    def choose(self, name: str | None, instruction: str) -> Choice:
        """The named piece; else the one with the longest keyword in the instruction, of equals yours; else `general`.

        A broken piece that was not named is passed over, and the reason says so. Raises UnknownPiece, InvalidPiece.
        """
        if name is not None:
            return Choice(self.get(name), "named by the submitter")
        entries = self.entries()
        broken = [entry.name for entry in entries if entry.problems]
        note = f"; passed over as invalid: {', '.join(broken)}" if broken else ""
        hits = [
            (len(keyword), entry.origin == "yours", entry.piece, keyword)
            for entry in entries
            if entry.piece and entry.piece.triggers and not entry.problems
            for keyword in entry.piece.triggers.keywords
            if _mentions(instruction, keyword)
        ]
        if not hits:
            return Choice(self.get(DEFAULT_PIECE), f"no keyword of a piece in the instruction{note}")
        *_, piece, keyword = max(hits, key=lambda hit: hit[:2])  # of equals the first by name
        return Choice(piece, f"keyword {keyword!r} in the instruction{note}")

    def _paths(self) -> dict[str, tuple[Origin, Path]]:
        found: dict[str, tuple[Origin, Path]] = {}
        for origin, folder in self._folders:
            for file in sorted((*folder.glob("*.yaml"), *folder.glob("*.yml"))):
                if file.is_file():
                    found.setdefault(file.stem, (origin, file))
        return dict(sorted(found.items()))


def _entry(name: str, origin: Origin, path: Path) -> PieceEntry:
    try:
        piece, problems = check_piece(path)
    except InvalidPiece as error:  # the file cannot be opened
        piece, problems = None, [error]
    return PieceEntry(name, origin, path, piece, problems)


def _mentions(instruction: str, keyword: str) -> bool:
    """The keyword as whole words, in any case; scripts that write without spaces match anywhere."""
    pattern = re.escape(keyword)
    if re.match(r"[a-zA-Z0-9]", keyword):
        pattern = rf"(?<![a-zA-Z0-9]){pattern}"
    if re.search(r"[a-zA-Z0-9]$", keyword):
        pattern = rf"{pattern}(?![a-zA-Z0-9])"
    return re.search(pattern, instruction, re.IGNORECASE) is not None
