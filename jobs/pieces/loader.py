"""A piece's YAML file to a checked `Piece`, with every problem at its line and column."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from jobs.documents import Document, DocumentError, Place, model_problems, read_document
from jobs.errors import InvalidPiece, NotFound
from jobs.pieces import checks
from jobs.pieces.model import Piece

Problem = tuple[int | None, int | None, str]  # line, column, what is wrong


def load_piece(path: Path) -> Piece:
    """The checked piece of a file. Raises InvalidPiece for its first problem, NotFound where there is no file."""
    piece, found = check_piece(path)
    if piece is None or found:
        raise found[0]
    return piece


def check_piece(path: Path) -> tuple[Piece | None, list[InvalidPiece]]:
    """The piece, if it could be read, and all problems in the order of their lines.

    Parsed files are remembered by size and time of change, so that a busy submitter does not parse them each time.
    """
    try:
        status = path.stat()
        piece, problems = _check(path, status.st_mtime_ns, status.st_size, status.st_ino)
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except OSError as error:
        raise InvalidPiece((error.strerror or "cannot be read").lower(), file=str(path)) from None
    return piece, [
        InvalidPiece(problem, file=str(path), line=line, column=column) for line, column, problem in problems
    ]


@lru_cache(maxsize=200)
def _check(path: Path, _mtime: int, _size: int, _inode: int) -> tuple[Piece | None, list[Problem]]:
    try:
        document = read_document(path)
    except DocumentError as error:
        return None, [(error.line, error.column, error.problem)]
    piece, found = _validate(document)
    if piece and piece.name != path.stem:
        found.append((("name",), f"the name is {piece.name!r}, but the file is called {path.name}"))
    return piece, [
        (*position, problem) for position, problem in sorted((document.position(p), t) for p, t in found)
    ]


def _validate(document: Document) -> tuple[Piece | None, list[tuple[Place, str]]]:
    try:
        piece = Piece.model_validate(document.data)
    except ValidationError as error:
        return None, list(model_problems(Piece, error))
    return piece, list(checks.problems(piece))
