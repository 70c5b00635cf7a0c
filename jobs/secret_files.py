"""Secrets in files: where the variable NAME is not set, NAME_FILE names a file that holds its value.

So a secret stands in no environment, which a process's other files show and which children inherit. A file is read once a
process: what was read at its start is what is masked.
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from jobs.errors import ConfigurationError

SUFFIX = "_FILE"
LARGEST = 64 * 1024
MOUNTED = Path("/run/secrets")  # where container engines put them, for one container's users


@functools.cache
def read_secret(variable: str, path: str) -> str:
    """The file's text without the line's end. Raises ConfigurationError, which names the variable and shows no text."""
    where = f"{variable}: the file {path}"
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - as a person wrote it, for the error
            data = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or "cannot be read").lower()
        raise ConfigurationError(f"{where}: {reason}") from None
    try:
        text = data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{where} is no text in UTF-8") from None
    if not text or len(data) > LARGEST:
        raise ConfigurationError(f"{where} is {'empty' if not text else 'too large for a secret'}")
    return text


def exposure(path: Path) -> str | None:
    """What other users of this machine can do with a secret's file: "write", "read"; None: nothing. Raises OSError.

    A file that all may read is no worse than its folder: one that others cannot enter keeps it, as in a container.
    """
    resolved = path.resolve(strict=True)
    mode = resolved.stat().st_mode
    reachable = all(folder.stat().st_mode & stat.S_IXOTH for folder in resolved.parents)
    if reachable and mode & stat.S_IWOTH:
        return "write"
    return "read" if reachable and mode & stat.S_IROTH and not resolved.is_relative_to(MOUNTED) else None


class Variables(Mapping[str, str]):
    """An environment in which NAME is also there where only NAME_FILE is set."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ

    def __getitem__(self, name: str) -> str:
        if value := self._environ.get(name):
            return value
        if path := self._environ.get(name + SUFFIX):
            return read_secret(name + SUFFIX, path)
        return self._environ[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._environ)

    def __len__(self) -> int:
        return len(self._environ)
