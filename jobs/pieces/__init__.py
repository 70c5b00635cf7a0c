"""Pieces: workflows in YAML, checked and frozen into a job when it is submitted."""

from jobs.pieces.library import Choice, Library, PieceEntry
from jobs.pieces.loader import check_piece, load_piece
from jobs.pieces.model import ABORT, ASK, COMPLETE, WAIT_SUBTASKS, Movement, Piece, Rule, freeze, thaw

__all__ = [
    "ABORT",
    "ASK",
    "COMPLETE",
    "WAIT_SUBTASKS",
    "Choice",
    "Library",
    "Movement",
    "Piece",
    "PieceEntry",
    "Rule",
    "check_piece",
    "freeze",
    "load_piece",
    "thaw",
]
