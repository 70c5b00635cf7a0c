"""What of the machine a sandboxed command may read, and the environment it gets."""

from __future__ import annotations

import sys
from pathlib import Path

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


def python_prefix() -> Path | None:
    """The folder of the machine's Python if it lies outside the system folders, else None.

    Only ever a folder that holds nothing but Python: not one that also contains the home or the working folder.
    """
    prefix = Path(sys.base_prefix).resolve()
    if prefix == Path("/") or any(prefix.is_relative_to(folder) for folder in SYSTEM_FOLDERS):
        return None
    for precious in (Path.home(), Path.cwd()):
        if precious.resolve().is_relative_to(prefix):
            return None
    return prefix


def python_program() -> str:
    """The machine's Python, as it can be run in a sandbox."""
    return str(Path(sys.base_prefix).resolve() / "bin" / f"python3.{sys.version_info.minor}")


def environment(home: str, temporary: str) -> dict[str, str]:
    """All that a command finds in its environment."""
    prefix = python_prefix()
    path = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
    return {
        "HOME": home,
        "LANG": "C.UTF-8",
        "PATH": f"{prefix}/bin:{path}" if prefix else path,
        "TERM": "dumb",
        "TMPDIR": temporary,
        "USER": "agent",
    }
