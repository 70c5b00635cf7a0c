"""The embedded broker of platforms without a Valkey binary: kombu's filesystem transport over a private folder.

Slower (a few hundred messages a second) and all by polling, but with nothing to start. Its URL names the folder,
`filesystem:///path/of/queue`; kombu itself wants the folders as options, which `file_broker_options` gives.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

POLL_INTERVAL = 0.02  # kombu's default of 1 s would be each wake-up's delay
MESSAGE_LIFETIME = 600.0  # the sweep has long sent an undelivered wake-up of this age again
SCHEME = "filesystem://"


def file_broker_url(data_dir: Path) -> str:
    """The URL of the data folder's message files; makes their folders, closed to other users."""
    queue = data_dir.absolute() / "run" / "queue"
    for folder in (queue, *(queue / name for name in ("messages", "taken", "control"))):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return SCHEME + quote(str(queue))


def file_broker_options(url: str) -> dict[str, Any]:
    """The transport options that go with such a URL.

    Taken messages are moved within one file system, which is atomic, so that one worker gets each; kombu's default
    moves them to /tmp by copying.
    """
    queue = Path(unquote(url.removeprefix(SCHEME)))
    return {
        "data_folder_in": str(queue / "messages"),
        "data_folder_out": str(queue / "messages"),
        "store_processed": True,
        "processed_folder": str(queue / "taken"),
        "control_folder": str(queue / "control"),
        "polling_interval": POLL_INTERVAL,
    }


def clean_message_files(url: str) -> int:
    """Remove old files, taken ones and those nobody takes (events without a viewer); returns how many."""
    options = file_broker_options(url)
    oldest = time.time() - MESSAGE_LIFETIME
    removed = 0
    for name in ("data_folder_in", "processed_folder"):
        for file in Path(options[name]).glob("*.msg"):
            with contextlib.suppress(FileNotFoundError):  # another process's janitor was faster
                if file.stat().st_ctime < oldest:  # ctime: the moment it was taken, else written
                    file.unlink()
                    removed += 1
    return removed
