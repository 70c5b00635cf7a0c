"""A short storm on each database."""

from __future__ import annotations

import pytest

from tests.servers.session import ServerSession
from tests.storm.run import Storm, weather_the_storm
from tests.storm.traffic import Mix

SEED, SECONDS = 11, 20.0


@pytest.mark.timeout(900)  # a guard: a busy machine may take its time to settle
@pytest.mark.parametrize(("database", "broker"), [("sqlite", "valkey"), ("postgres", "redis")])
def test_a_short_storm_loses_repeats_and_blocks_nothing(
    server_session: ServerSession, database: str, broker: str
) -> None:
    storm = Storm(SEED, SECONDS, database, broker, workers=3, mix=Mix(open_jobs=8))
    outcome = weather_the_storm(server_session, storm)
    assert outcome.faults == []
    assert outcome.remarks == []  # every blow fell
    assert outcome.verdict == "lost 0, repeated 0, stuck 0"
    assert int(outcome.figures["steps"]) > 0
