"""How many examples a property is tried with: a fixed number in CI, as many as asked for by `make fuzz`."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

FUZZ = int(os.environ.get("FUZZ", "0"))
patient = pytest.mark.timeout(0 if FUZZ else 900)  # for as long as so many take


def thorough(examples: int) -> settings:
    """`examples` of them; `FUZZ=N` in the environment tries N, others in each run."""
    return settings(
        max_examples=FUZZ or examples,
        derandomize=not FUZZ,
        database=None,
        deadline=None,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.function_scoped_fixture,
        ],
    )
