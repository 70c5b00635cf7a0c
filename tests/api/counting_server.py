"""The API as a process that counts its SQL statements in a file: `python -m tests.api.counting_server FILE`."""

from __future__ import annotations

import mmap
import sys
import threading
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from jobs.api.server import serve
from jobs.installation import open_installation
from jobs.settings_sources import load_settings

BYTES = 8


def read_count(file: Path) -> int:
    """How many statements there were so far."""
    return int.from_bytes(file.read_bytes(), "little")


def main() -> None:
    count = 0
    counting = threading.Lock()
    with Path(sys.argv[1]).open("r+b") as file, mmap.mmap(file.fileno(), BYTES) as shown:

        def one_more(*_: Any) -> None:
            nonlocal count
            with counting:
                count += 1
                shown[:] = count.to_bytes(BYTES, "little")

        sa.event.listen(sa.Engine, "before_cursor_execute", one_more)
        with open_installation(load_settings()) as opened:
            serve(
                opened,
                "127.0.0.1",
                0,
                allow_remote=False,
                names=(),
                listening=lambda url: print(url, flush=True),
            )


if __name__ == "__main__":
    main()
