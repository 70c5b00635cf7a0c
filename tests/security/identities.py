"""Running a command as somebody else: an ordinary user, or root without a single capability.

What a sandbox can do hangs on who the worker is. Only root can become somebody else: where the tests run as an ordinary
user they are that user already, and the command runs as it is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.servers.session import NOBODY, enterable

ROOT = Path(__file__).parents[2]

_AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
_WITHOUT_CAPABILITIES = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]

# Root's own folders are closed to others. Where the environment lies in one, it is shown alone in its place: an empty
# file system over the closed folder, in a mount namespace of the command's own, with the wanted parts bound into it.
_OPEN_UP = """
set -euo pipefail
stage=$1 closed=$2; shift 2
mount -t tmpfs -o mode=755 none "$stage"
parts=()
while [ "$1" != -- ]; do parts+=("$1"); shift; done; shift
for at in "${!parts[@]}"; do mkdir "$stage/$at"; mount --bind "${parts[$at]}" "$stage/$at"; done
here=$PWD; cd /
mount -t tmpfs -o mode=755 none "$closed"
for at in "${!parts[@]}"; do mkdir -p "${parts[$at]}"; mount --bind "$stage/$at" "${parts[$at]}"; done
umount -R "$stage"
cd "$here"
exec "$@"
"""


def ordinary(command: Sequence[str], stage: Path) -> list[str]:
    """`command` as the user nobody, who can read this environment. `stage` is an empty folder to mount on."""
    if os.geteuid() != 0:
        return list(command)
    parts = [Path(sys.base_prefix).resolve(), ROOT, Path(sys.prefix).resolve()]
    parts = [
        part for part in parts if not any(part != other and part.is_relative_to(other) for other in parts)
    ]
    closed = {_closed_folder(part) for part in parts} - {None}
    if not closed:
        return [*_AS_NOBODY, *command]
    assert len(closed) == 1, f"more than one closed folder: {closed}"
    script = ["bash", "-c", _OPEN_UP, "bash", str(stage), str(closed.pop()), *map(str, parts), "--"]
    return ["unshare", "--mount", "--propagation", "private", *script, *_AS_NOBODY, *command]


def without_capabilities(command: Sequence[str], stage: Path) -> list[str]:
    """`command` as root, with what is left to root when its container keeps all capabilities from it."""
    return [*_WITHOUT_CAPABILITIES, *command] if os.geteuid() == 0 else list(command)


def _closed_folder(path: Path) -> Path | None:
    """The outermost folder above `path` that others may not enter."""
    return next((folder for folder in reversed(path.parents) if not enterable(folder)), None)
