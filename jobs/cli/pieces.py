"""`sostenuto pieces`: the workflows that jobs run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.cli import options, render
from jobs.cli.context import load
from jobs.cli.text import clean, to_json

if TYPE_CHECKING:
    from jobs.pieces import Piece


def list_pieces(json: options.Json = False) -> None:
    """List the pieces. A piece of yours hides the built-in one of the same name."""
    from jobs.pieces import Library

    entries = Library(load().pieces_dir).entries()
    if json:
        rows = [
            {
                "name": entry.name,
                "origin": entry.origin,
                "file": str(entry.path),
                "description": entry.piece and entry.piece.description,
                "valid": not entry.problems,
            }
            for entry in entries
        ]
        print(to_json({"pieces": rows}))
        return
    render.table(
        ["PIECE", "FROM", "DESCRIPTION"],
        [
            [
                (entry.name, "bold"),
                entry.origin,
                entry.piece.description
                if entry.piece and not entry.problems
                else ("invalid, see validate", "red"),
            ]
            for entry in entries
        ],
    )


def show(
    name: Annotated[str, typer.Argument(metavar="PIECE", help="The piece's name.", show_default=False)],
    json: options.Json = False,
) -> None:
    """Show one piece. Its movements, what they may use and where they lead."""
    from jobs.pieces import Library

    library = Library(load().pieces_dir)
    piece = library.get(name)
    if json:
        print(to_json({**piece.model_dump(mode="json"), "file": str(library.path(name))}))
    else:
        _print_piece(piece, library.path(name))


def validate(
    file: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="YAML files. Default: all pieces.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Check pieces. Prints every problem with file, line and column; exit code 2 if there is any."""
    from jobs.pieces import Library, check_piece

    files = file or [entry.path for entry in Library(load().pieces_dir).entries()]
    problems = [problem for path in files for problem in check_piece(path)[1]]
    if json:
        rows = [
            {"file": found.file, "line": found.line, "column": found.column, "problem": found.problem}
            for found in problems
        ]
        print(to_json({"valid": not rows, "files": [str(path) for path in files], "problems": rows}))
    else:
        for found in problems:
            render.line(str(found))
        if not problems:
            render.note(f"{len(files)} valid")
    if problems:
        raise typer.Exit(2)


def graph(
    name: Annotated[str, typer.Argument(metavar="PIECE", help="The piece's name.", show_default=False)],
    json: options.Json = False,
) -> None:
    """Print a piece as a Mermaid diagram. Its movements, and what leads from one to the next."""
    from jobs.pieces import Library
    from jobs.pieces.graph import mermaid

    diagram = mermaid(Library(load().pieces_dir).get(name))
    print(to_json({"name": name, "mermaid": diagram}) if json else clean(diagram))


def schema() -> None:
    """Print the JSON Schema of a piece. For editors that check YAML."""
    from jobs.pieces.model import piece_schema

    print(to_json(piece_schema()))


def _print_piece(piece: Piece, file: Path) -> None:
    render.line((piece.name, "bold"), f"  {piece.description}")
    render.line((str(file), "dim"))
    if piece.triggers:
        render.line(("keywords   ", "dim"), ", ".join(piece.triggers.keywords))
    for movement in piece.movements:
        first = " (first)" if movement.name == piece.initial_movement else ""
        render.line()
        render.line((movement.name, "bold"), (first, "dim"))
        render.line(
            ("  tools    ", "dim"),
            ", ".join(movement.allowed_tools),
            "" if movement.edit else " (reads only)",
        )
        if movement.verify:
            render.line(("  verifies ", "dim"), movement.verify)
        for rule in movement.rules:
            render.line(("  → ", "dim"), (rule.next, "bold"), f"  {rule.condition}")
        if movement.default_next:
            render.line(("  else ", "dim"), movement.default_next)
        render.line()
        for text in movement.instruction.rstrip().splitlines():
            render.line(f"  {text}".rstrip())
