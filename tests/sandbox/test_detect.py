"""Which sandbox is chosen, and that it is never silently a weaker one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from worker.cancel import CancelToken
from worker.sandbox.base import Caps, Ending, Level, Outcome, Sandbox, SandboxUnavailable, Service
from worker.sandbox.bwrap import Bwrap
from worker.sandbox.detect import detect
from worker.sandbox.landlock import Landlock, landlock_abi


@dataclass(frozen=True)
class Settings:
    allow_unsandboxed: bool = False
    sandbox_min: Literal["bwrap", "landlock"] | None = None
    max_file_bytes: int = 1 << 20
    max_workspace_bytes: int = 1 << 30
    max_workspace_files: int = 100


def _missing(_: Caps) -> Sandbox:
    raise SandboxUnavailable("there is no bwrap program")


class Leaky:
    """Claims to be bwrap; its attacker reports success."""

    level = Level.BWRAP
    description = "leaky"

    def __init__(self, caps: Caps) -> None:
        self.caps = caps

    def run(
        self,
        argv: Sequence[str],
        *,
        workspace: Path,
        timeout: float,
        cancel: CancelToken,
        on_output: Callable[[bytes], None],
        service: Service | None = None,
    ) -> Outcome:
        on_output(b'["connect by TCP"]')
        return Outcome(Ending.EXITED, 0)


class Tight(Leaky):
    """Its attacker reports failure."""

    level = Level.LANDLOCK

    def run(
        self,
        argv: Sequence[str],
        *,
        workspace: Path,
        timeout: float,
        cancel: CancelToken,
        on_output: Callable[[bytes], None],
        service: Service | None = None,
    ) -> Outcome:
        on_output(b"[]")
        return Outcome(Ending.EXITED, 0)


def test_the_strongest_that_works_here_is_chosen() -> None:
    try:
        expected = Bwrap(Caps()).level
    except SandboxUnavailable:
        expected = Level.LANDLOCK
    if expected is Level.LANDLOCK and landlock_abi() < 3:
        pytest.skip("neither bwrap nor Landlock here")
    sandbox = detect(Settings())
    assert sandbox.level is expected
    assert sandbox.description.startswith(expected)


def test_landlock_serves_where_bwrap_is_missing() -> None:
    try:
        Landlock(Caps())
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    sandbox = detect(Settings(), [_missing, Landlock])
    assert sandbox.level is Level.LANDLOCK
    assert sandbox.description.endswith("; not stronger: there is no bwrap program")


def test_a_sandbox_that_leaks_is_not_used() -> None:
    assert detect(Settings(), [Leaky, Tight]).level is Level.LANDLOCK
    with pytest.raises(SandboxUnavailable, match="connect by TCP"):
        detect(Settings(), [Leaky])


def test_below_the_minimum_is_refused() -> None:
    with pytest.raises(SandboxUnavailable, match="bwrap or better") as caught:
        detect(Settings(sandbox_min="bwrap", allow_unsandboxed=True), [_missing, Tight])
    assert caught.value.hint is not None


def test_none_is_refused_unless_allowed_and_then_warns() -> None:
    with pytest.raises(SandboxUnavailable, match="there is no bwrap program"):
        detect(Settings(), [_missing])
    sandbox = detect(Settings(allow_unsandboxed=True), [_missing])
    assert sandbox.level is Level.NONE
    assert "UNSANDBOXED" in sandbox.description


def test_the_caps_come_from_the_settings() -> None:
    seen: list[Caps] = []

    def tight(caps: Caps) -> Sandbox:
        seen.append(caps)
        return Tight(caps)

    detect(Settings(), [tight])
    assert (seen[0].file_bytes, seen[0].workspace_bytes, seen[0].workspace_files) == (1 << 20, 1 << 30, 100)


def test_an_old_landlock_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from worker.sandbox import landlock

    monkeypatch.setattr(landlock, "landlock_abi", lambda: 2)
    with pytest.raises(SandboxUnavailable, match="this kernel has 2"):
        Landlock(Caps())


def test_landlock_without_scopes_holds_back_signals(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Kernels before 6.12 cannot scope signals, so the filter denies them all."""
    from worker.sandbox import landlock
    from worker.sandbox.probe import attack

    if landlock_abi() < 5:
        pytest.skip("no such Landlock here")
    monkeypatch.setattr(landlock, "landlock_abi", lambda: 5)
    sandbox = Landlock(Caps())
    assert "no signals at all" in sandbox.description
    assert attack(sandbox) == []
