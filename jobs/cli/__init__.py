"""The command line. This module is what starts, so it imports little: `sostenuto --help` should feel instant.

Every error ends here as one line on stderr (with --json also as a JSON object) and an exit code of jobs.errors.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["main", "run"]

INTERRUPTED = 130
BROKEN_PIPE = 1  # as Typer ends where it meets one first


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; raises nothing."""
    try:
        from jobs.cli.app import execute

        code = execute(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader, `head` say, has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:  # noqa: BLE001 - the last resort: one line instead of a traceback
        from jobs.cli.failures import report

        return report(error, as_json=_wants_json(arguments))
    return code


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether --json was given; the parser may be what failed, so it cannot be asked."""
    options = list(arguments)
    return "--json" in (options[: options.index("--")] if "--" in options else options)
