"""What one pytest process owns: a mark for its children, a folder, and the watchdog that ends both."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.servers import watchdog

NOBODY = 65534


def enterable(path: Path) -> bool:
    """Whether an ordinary user may walk into this folder: each one above it, and itself, grants x to others."""
    resolved = path.resolve()
    return all(folder.stat().st_mode & 0o001 for folder in (resolved, *resolved.parents))


def free_port() -> int:
    """A TCP port on 127.0.0.1 that was free a moment ago; whoever binds it must be ready to find it taken."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class ServerSession:
    """Children started through `spawn` die with this session, however it ends."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        base = Path(tempfile.gettempdir())
        if os.geteuid() == 0 and not enterable(base):
            base = Path("/tmp")
        self.folder = Path(tempfile.mkdtemp(prefix="sostenuto-tests-", dir=base))
        self.folder.chmod(0o755)
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", watchdog.__file__, self.mark, str(self.folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._numbers = 0

    def new_folder(self, name: str) -> Path:
        """A fresh empty folder with a short path (Unix sockets must fit in about a hundred bytes)."""
        self._numbers += 1
        folder = self.folder / f"{name}{self._numbers}"
        folder.mkdir()
        return folder

    def spawn(
        self,
        command: Sequence[str | Path],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        submark: str = "",
        cwd: Path | str = "/",
        as_nobody: bool = False,
    ) -> subprocess.Popen[bytes]:
        """Start a marked process in a session of its own, both its outputs appended to `log`."""
        mark = f"{self.mark}/{submark}" if submark else self.mark
        user = NOBODY if as_nobody else None
        with log.open("ab") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**(os.environ if env is None else env), watchdog.MARK: mark},
                cwd=cwd,
                start_new_session=True,
                user=user,
                group=user,
                extra_groups=[] if as_nobody else None,
            )

    def reap(self, submark: str) -> int:
        """Kill what carries the sub-mark or names files of that folder; returns how many processes there were."""
        return watchdog.kill_marked(f"{self.mark}/{submark}", str(self.folder / submark))

    def close(self) -> None:
        """End everything and wait until it is ended. The watchdog does it, as it would after our death."""
        if self._watchdog.stdin is not None:
            self._watchdog.stdin.close()
        self._watchdog.wait(timeout=300)  # a guard: what an hour has written takes its time to go
