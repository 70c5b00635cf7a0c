"""Whether the running workers offer the MCP servers that a piece requires."""

from __future__ import annotations

from jobs.errors import UsageError
from jobs.installation import Installation
from jobs.pieces import Piece
from storage import registry

FRESH_SECONDS = 60.0


def check_required_mcp(installation: Installation, piece: Piece) -> None:
    """Raises UsageError where workers run and none of them has a server that the piece cannot work without.

    Without any worker the job is accepted: the one that takes it checks again.
    """
    if not piece.required_mcp:
        return
    workers = registry.live_workers(installation.db, FRESH_SECONDS, taking=True)
    offered = {name for worker in workers for name in worker["mcp"] or ()}
    missing = [name for name in piece.required_mcp if name not in offered]
    if workers and missing:
        raise UsageError(
            f"the piece {piece.name} requires the MCP server {missing[0]!r}, which no running worker offers",
            hint="name it in the mcp: block of the workers' settings; what is wrong with it: sostenuto doctor",
        )
