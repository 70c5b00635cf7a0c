"""The same seed gives the same blows."""

from __future__ import annotations

import pytest

from storage.crashpoints import _Fuse
from tests.storm.__main__ import main
from tests.storm.blows import POINTS, WARM_UP, Blow, plan
from tests.storm.brokers import BROKERS
from tests.storm.site import DATABASES

HOUR = 3600.0


def _plan(seed: int, database: str = "sqlite", broker: str = "valkey") -> list[Blow]:
    return plan(seed, HOUR, database=database, broker=broker, workers=4, lease=4.0)


def test_the_same_seed_gives_the_same_blows_and_another_one_others() -> None:
    assert _plan(7) == _plan(7)
    assert _plan(7) != _plan(8)


def test_the_plan_that_is_printed_is_that_of_the_seed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = []
    for _ in range(2):
        monkeypatch.setattr("sys.argv", ["storm", "--plan", "--seed", "7", "--duration", str(HOUR)])
        assert main() == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert printed[0].splitlines() == ["seed 7", *(str(blow) for blow in _plan(7))]


@pytest.mark.parametrize("database", DATABASES)
@pytest.mark.parametrize("broker", BROKERS)
def test_every_kind_of_blow_falls_on_every_worker(database: str, broker: str) -> None:
    blows = _plan(1, database, broker)
    kinds = {blow.kind.partition(".")[0] for blow in blows}
    assert kinds == {"worker", "broker", "database", "model"}
    assert {blow.slot for blow in blows if blow.slot >= 0} == {0, 1, 2, 3}
    assert [blow.at for blow in blows] == sorted(blow.at for blow in blows)
    assert blows[0].at >= WARM_UP
    assert blows[-1].at < HOUR


def test_every_crash_point_of_a_worker_is_armed_some_time() -> None:
    armed = [blow.crash_point for blow in _plan(1) if blow.kind == "worker.arm"]
    assert {point.partition(":")[0] for point in armed} == set(POINTS)
    for point in armed:
        _Fuse(point)  # it can be read
    assert any(point.endswith(":stop") for point in armed)
