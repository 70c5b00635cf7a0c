"""What of the machine a sandboxed command may read, and the environment it gets."""

from __future__ import annotations

import sys
from pathlib import Path

from worker.sandbox.base import SandboxUnavailable

SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC_FILES = (
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/ssl/openssl.cnf",
)


def python_prefix(workspace: Path) -> Path | None:
    """The folder of the machine's Python if it lies outside the system folders, else None.

    Only ever a folder that holds Python and its packages: not one that also contains the workspaces, the home or the
    working folder.
    """
    prefix = Path(sys.base_prefix).resolve()
    if prefix == Path("/") or any(prefix.is_relative_to(folder) for folder in SYSTEM_FOLDERS):
        return None
    precious = (workspace, Path.home(), Path.cwd())
    return None if any(path.resolve().is_relative_to(prefix) for path in precious) else prefix


def require_outside_toolchain(workspace: Path) -> None:
    """Raise SandboxUnavailable if the workspaces lie in a folder that every command may read."""
    path = workspace.resolve()
    for folder in SYSTEM_FOLDERS:
        if path.is_relative_to(Path(folder).resolve()):
            raise SandboxUnavailable(
                f"the data folder lies below {folder}, which all jobs can read",
                hint="set SOSTENUTO_DATA_DIR to a folder elsewhere",
            )


def python_program() -> str:
    """The machine's Python, as it can be run in a sandbox."""
    return str(Path(sys.base_prefix).resolve() / "bin" / f"python3.{sys.version_info.minor}")


def environment(workspace: Path, home: str, temporary: str) -> dict[str, str]:
    """All that a command finds in its environment."""
    prefix = python_prefix(workspace)
    path = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
    return {
        "HOME": home,
        "LANG": "C.UTF-8",
        "PATH": f"{prefix}/bin:{path}" if prefix else path,
        "TERM": "dumb",
        "TMPDIR": temporary,
        "USER": "agent",
    }
