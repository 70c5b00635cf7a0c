"""What a command works on: the settings, the opened installation, the job that an abbreviated id means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobs.installation import Installation
    from jobs.settings import Settings

_secrets: list[str] = []


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of an environment, by default this process's. From here on `masked` knows their secrets."""
    from jobs.settings_sources import load_settings

    settings = load_settings(environ)
    _secrets[:] = settings.secrets()
    return settings


@contextmanager
def opened() -> Iterator[Installation]:
    """The installation of this folder or environment, closed at the end of the block."""
    from jobs.audit import Source, coming_from
    from jobs.installation import open_installation

    with open_installation(load()) as installation, coming_from(Source("cli")):
        yield installation


@contextmanager
def opened_job(abbreviated: str) -> Iterator[tuple[Installation, str]]:
    """The installation, and the whole id of a job. Raises JobNotFound or AmbiguousJobId."""
    from jobs.views import find_job_id

    with opened() as installation:
        yield installation, find_job_id(installation, abbreviated, installation.settings.owner)


def masked(text: str) -> str:
    """`text` without the exact values of the settings' secrets."""
    for secret in _secrets:
        text = text.replace(secret, "***")
    return text
