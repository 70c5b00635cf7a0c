"""Whatever people, workers, deaths and time do to jobs: what must hold of them holds, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.context.fuzzing import FUZZ, thorough
from tests.proof.hands import install
from tests.proof.machine import Stories
from tests.proof.world import World, stop_the_clocks
from tests.strict_endpoint import StrictEndpoint

EXAMPLES = 25
STEPS = 30


@pytest.fixture
def world(migrated_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    stop_the_clocks(monkeypatch)
    with StrictEndpoint(lambda _: None) as endpoint:  # type: ignore[arg-type,return-value]
        world = World(migrated_url, tmp_path, endpoint)
        restore = install(world.fuse)
        yield world
        restore()
        world.close()


@pytest.mark.timeout(0)  # each wait within a story has its own limit; their number is what takes long
def test_any_story_keeps_the_invariants(world: World) -> None:
    class Told(Stories):
        pass

    Told.world = world
    wanted = settings(
        thorough(EXAMPLES),
        max_examples=FUZZ // 50 or EXAMPLES,  # a story takes as long as fifty histories of a context
        stateful_step_count=STEPS,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Told, settings=wanted)
