"""The size of a context: what an endpoint's count is worth, and what the estimator makes of the rest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.context.fuzzing import thorough
from worker.accounting import (
    LEAST_RATIO,
    MOST_RATIO,
    SHRUNK,
    SLACK,
    Marks,
    Size,
    marks_column,
    marks_of,
    plausible,
    size_columns,
    size_of,
)
from worker.model.types import Usage
from worker.thresholds import limits, reserve_of, worth_trying


@pytest.mark.parametrize(
    ("usage", "believed"),
    [
        (Usage(1100, 10), 1100),
        (Usage(None, 10), None),  # missing
        (Usage(0, 10), None),  # zero is unknown
        (Usage(3, 10), None),  # nothing was counted but the cache's rest
        (Usage(100, 10, cached_tokens=1000), 1100),  # cached tokens left out
        (Usage(1100, 10, cached_tokens=1000), 1100),  # cached tokens counted in
        (Usage(10_000_000, 10), None),
    ],
)
def test_a_count_is_believed_only_where_it_can_be(usage: Usage, believed: int | None) -> None:
    assert plausible(Size(1000, 1000, 950), usage) == believed


def test_a_count_that_shrinks_while_the_context_grows_is_not_believed() -> None:
    size = Size(1000, 1000).counted(Usage(2000, 1))
    grown = size.grown(500)
    assert grown.counted(Usage(1500, 1)) == grown
    assert grown.counted(Usage(2600, 1)).tokens == 2600


def test_the_ratio_corrects_what_is_appended_and_survives_a_compaction() -> None:
    size = Size(1000, 1000).counted(Usage(1500, 1)).grown(100)
    assert (size.tokens, size.estimate, size.measured) == (1650, 1100, 1500)
    smaller = size.replaced(400)
    assert (smaller.tokens, smaller.measured, smaller.ratio) == (600, 0, 1.5)  # what was measured is void
    assert smaller.for_another_model() == Size(400, 400)


def test_size_and_marks_survive_the_row() -> None:
    size = Size(1650, 1100, 1500, 1.5)
    marks = Marks(model="m", fixed=5, warned=True, useless=1, useless_at=900)
    row = size_columns(size) | marks_column(marks)
    assert size_of(row) == size
    assert marks_of(row) == marks
    assert marks_column(Marks()) == {"context_marks": None}
    assert marks_of({"context_marks": {"of_a_later_version": 1}}) == Marks()


def test_the_limits_of_a_window() -> None:
    found = limits(10_000, 2_000, None, known=True, ceiling=0)
    assert (found.usable, found.warn, found.compact, found.ask_to_end, found.force, found.stop) == (
        8_000, 5_600, 6_400, 6_800, 7_600, 7_920,
    )  # fmt: skip
    assert limits(10_000, None, None, known=False, ceiling=0).compact == 8_000
    assert limits(200_000, None, None, known=False, ceiling=0).compact == 8_000
    assert limits(10_000, 2_000, 50_000, known=True, ceiling=0).compact < 6_800  # clamped below 85%
    assert limits(10_000, 2_000, 3_000, known=True, ceiling=0).compact == 3_000
    assert limits(10_000, 2_000, None, known=True, ceiling=5_000).usable == 4_500


@pytest.mark.parametrize("window", [256, 8_000, 1_000_000])
@pytest.mark.parametrize("max_output", [None, 1, 8_000, 10**9])
def test_prompt_and_reply_never_exceed_the_window(window: int, max_output: int | None) -> None:
    found = limits(window, max_output, None, known=True, ceiling=0)
    assert found.stop + reserve_of(window, max_output) <= window
    assert found.warn <= found.compact < found.ask_to_end <= found.force <= found.stop


def test_the_breaker() -> None:
    assert worth_trying(1000, 0, 0)
    assert not worth_trying(1000, 1, 1000)
    assert worth_trying(1100, 1, 1000)
    assert not worth_trying(10_000, 2, 1000)


USAGES = st.builds(
    Usage,
    st.one_of(st.none(), st.integers(-1, 3 * 10**6)),
    st.one_of(st.none(), st.integers(0, 10**5)),
    st.one_of(st.none(), st.integers(0, 10**6)),
)
CHANGES = st.one_of(
    st.tuples(st.just("grown"), st.integers(0, 100_000)),
    st.tuples(st.just("replaced"), st.integers(0, 500_000)),
    st.tuples(st.just("counted"), USAGES),
    st.tuples(st.just("for_another_model")),
)


@thorough(1_000)
@given(st.lists(CHANGES, max_size=30))
def test_no_endpoint_s_counts_lead_the_size_astray(changes: list[tuple[Any, ...]]) -> None:
    """Whatever is claimed, in any order: never negative, within four times of the estimate, and the same after a restart."""
    size = Size()
    for name, *given_ in changes:
        before, size = size, getattr(size, name)(*given_)
        if name == "grown":
            assert size.tokens >= before.tokens
            assert size.measured == before.measured
        elif name == "counted" and size != before:
            assert size.tokens == size.measured > 0
            assert size.measured >= before.measured * SHRUNK
        elif name != "counted":
            assert size.measured == 0
        assert LEAST_RATIO <= size.ratio <= MOST_RATIO
        slack = SLACK + len(changes)  # and what rounding adds
        assert LEAST_RATIO * size.estimate - slack <= size.tokens <= MOST_RATIO * size.estimate + slack
        kept = size_of(size_columns(size))
        assert (kept.tokens, kept.estimate, kept.measured) == (size.tokens, size.estimate, size.measured)
        assert kept.ratio == pytest.approx(size.ratio, abs=1e-4)


@thorough(1_000)
@given(
    st.integers(1, 2_000_000),
    st.one_of(st.none(), st.integers(1, 10**7)),
    st.one_of(st.none(), st.integers(1, 10**7)),
    st.booleans(),
    st.one_of(st.just(0), st.integers(1, 10**7)),
)
def test_limits_in_order_and_within_the_window(
    window: int, max_output: int | None, threshold: int | None, known: bool, ceiling: int
) -> None:
    """Whatever is set: the reply's room is kept, and compaction comes before the request to end, the force, the stop."""
    found = limits(window, max_output, threshold, known=known, ceiling=ceiling)
    assert found.stop + reserve_of(window, max_output) <= window
    assert found.usable >= window // 2 or ceiling
    assert found.warn <= found.usable
    assert found.compact >= 1
    assert found.compact < found.ask_to_end or found.ask_to_end <= 1
    assert found.ask_to_end <= found.force <= found.stop <= found.usable
