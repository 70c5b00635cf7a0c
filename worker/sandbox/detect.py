"""Choosing the strongest sandbox that works here, and proving that it holds before it is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from worker.sandbox.base import Caps, Level, Sandbox, SandboxSettings, SandboxUnavailable
from worker.sandbox.bwrap import Bwrap
from worker.sandbox.landlock import Landlock, Unconfined
from worker.sandbox.probe import attack

_STRENGTH: dict[Level, int] = {Level.NONE: 0, Level.LANDLOCK: 1, Level.BWRAP: 2}


def detect(
    settings: SandboxSettings, candidates: Sequence[Callable[[Caps], Sandbox]] = (Bwrap, Landlock)
) -> Sandbox:
    """The first of `candidates` that can be set up and that a real attack from inside does not break.

    Takes about 0.2 s; call it once a process. Raises SandboxUnavailable, with what was tried, when none of at least the
    level `sandbox_min` works. Without that setting, `allow_unsandboxed` then gives a sandbox of level none, whose
    description is a warning to be shown; never otherwise. A worker that may run without a sandbox catches the error
    and gives its tools None: Bash then refuses, all else works.
    """
    caps = Caps(
        file_bytes=settings.max_file_bytes,
        workspace_bytes=settings.max_workspace_bytes,
        workspace_files=settings.max_workspace_files,
    )
    least = Level(settings.sandbox_min) if settings.sandbox_min else Level.LANDLOCK
    tried: list[str] = []
    for candidate in candidates:
        try:
            sandbox = candidate(caps)
            if _STRENGTH[sandbox.level] < _STRENGTH[least]:
                continue
            broken = attack(sandbox)
        except SandboxUnavailable as error:
            tried.append(str(error))
            continue
        if not broken:
            sandbox.description = "; ".join(
                [sandbox.description, *(f"not stronger: {told}" for told in tried)]
            )
            return sandbox
        tried.append(f"{sandbox.level} lets a command {', '.join(broken)}")
    reasons = "; ".join(tried) or "nothing to try"
    if settings.allow_unsandboxed and settings.sandbox_min is None:
        return Unconfined(caps)
    raise SandboxUnavailable(
        f"no sandbox of level {least} or better works here ({reasons})",
        hint="install bubblewrap and allow user namespaces; or, where nothing can be lost, set SOSTENUTO_ALLOW_UNSANDBOXED=1",
    )
