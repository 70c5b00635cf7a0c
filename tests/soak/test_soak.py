"""The soak's own parts: what it calls growth, what it draws, and a soak of a few seconds on real workers."""

from __future__ import annotations

import csv
import random
import re
from pathlib import Path

import pytest

from tests.servers.session import ServerSession
from tests.soak.__main__ import judge, soak, write
from tests.soak.measures import allowance
from tests.soak.plot import svg
from tests.soak.trend import Allowance, trend

HOUR = [float(second) for second in range(0, 3600, 30)]
MEMORY = "worker 0: memory, MiB"


def _noise(spread: float) -> list[float]:
    chance = random.Random(1)
    return [chance.uniform(-spread, spread) for _ in HOUR]


def test_noise_is_flat() -> None:
    assert not trend(HOUR, [100 + noise for noise in _noise(10)], allowance(MEMORY)).grows


def test_a_leak_in_the_noise_grows() -> None:
    leak = [100 + at / 3600 * 30 + noise for at, noise in zip(HOUR, _noise(10), strict=True)]
    found = trend(HOUR, leak, allowance(MEMORY))
    assert found.grows
    assert 15 < found.rise < 25  # of the last two thirds


def test_what_fills_in_the_first_third_and_single_jumps_are_no_growth() -> None:
    filling = [min(at / 1000, 1.0) * 100 for at in HOUR]
    filling[60] = filling[-1] = 1000.0
    assert not trend(HOUR, filling, allowance(MEMORY)).grows


def test_a_row_that_is_left_behind_now_and_then_grows() -> None:
    assert trend(HOUR, [at // 300 for at in HOUR], allowance("rows of locks")).grows
    assert trend(HOUR, [10 + at // 600 for at in HOUR], allowance("rows of messages a job")).grows


def test_too_few_samples_are_no_trend() -> None:
    with pytest.raises(ValueError, match="too few"):
        trend([0.0, 30.0], [1.0, 1.0], Allowance())


def test_the_plot_has_a_chart_for_each_measure_and_escapes_names() -> None:
    drawn = svg("<all> & more", [0, 1], {"a<b": [0.0, 0.0], "c": [1.0, 3.0]}, 1 / 3)
    assert re.findall('points="([^"]*)"', drawn) == ["22.0,194.0 322.0,194.0", "344.0,156.7 644.0,82.0"]
    assert "&lt;all&gt; &amp; more" in drawn
    assert "a&lt;b" in drawn


@pytest.mark.parametrize(("database", "broker"), [("sqlite", "valkey"), ("postgres", "redis")])
def test_a_soak_of_a_few_seconds(
    server_session: ServerSession, tmp_path: Path, database: str, broker: str
) -> None:
    samples = list(soak(server_session, 8, 1, database, broker))
    times = [at for at, _ in samples]
    series = {name: [found[name] for _, found in samples] for name in samples[0][1]}
    write(tmp_path, "soak", "a short soak", times, series)
    judge(times, series)
    rows = list(csv.reader((tmp_path / "soak.csv").open()))
    assert rows[0] == ["minutes", *series]
    assert len(rows) - 1 == len(times) == 8
    assert (tmp_path / "soak.svg").read_text().count("<polyline") == len(series)
    assert series["jobs"][-1] >= 1
    assert series["rows of workers"][-1] == 2
    assert min(series["worker 1: threads"]) >= 5
