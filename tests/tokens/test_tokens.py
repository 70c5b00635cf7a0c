"""The estimate is near a real tokenizer's count, never jumps, and stays linear. Counts are o200k_base's."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.estimates import CORPUS, ratio_to_o200k
from worker.tokens import estimate_tokens

ENGLISH = (
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness, "
    "it was the epoch of belief, it was the epoch of incredulity, it was the season of Light, "
    "it was the season of Darkness."
)
CODE = '''
    def finish(self, job_id: str, *, result: str | None = None) -> bool:
        """Ends the job, if this run still owns it."""
        with self.engine.begin() as tx:
            rows = tx.execute(update(jobs).where(jobs.c.id == job_id, jobs.c.run_id == self.run_id))
        return rows.rowcount == 1
'''
KOREAN = (
    "어제 회의의 회의록을 정리해 주세요. 새로운 결제 시스템의 도입 시기와 기존 고객 데이터의 이전 절차에 "
    "대해 논의했습니다. 이전은 삼월 첫째 주에 진행하며, 그 전에 검증 환경에서 전체 대조를 마치기로 했습니다."
)
RUSSIAN = "Вчера на совещании мы обсудили сроки внедрения новой платёжной системы и порядок переноса данных."
JSON = '{"id": 7, "name": "item-7", "ok": true, "values": [10.5, 259], "path": "/srv/data/00007.csv"}'
JAPANESE = (
    "会議の議事録をまとめてください。昨日の定例会では、新しい決済システムの導入時期と、既存の顧客データの移行手順に"
    "ついて話し合いました。移行は三月の第一週に行い、その前に検証環境で全件の照合を済ませることになっています。"
)
CHINESE = "學而時習之,不亦說乎?有朋自遠方來,不亦樂乎?人不知而不慍,不亦君子乎?"


@pytest.mark.parametrize(
    ("text", "real"),
    [
        (ENGLISH, 59),
        (CODE, 81),
        (KOREAN, 64),
        (JSON, 41),
        ("Great work 🎉🎉 — shipped 🚀 today! 👍🏽 Thanks 👩‍💻 team ❤️", 23),
        (RUSSIAN, 24),
    ],
    ids=["english", "code", "korean", "json", "emoji", "russian"],
)
def test_near_a_real_tokenizer(text: str, real: int) -> None:
    assert real * 0.85 <= estimate_tokens(text) <= real * 1.2


@pytest.mark.parametrize("text", [JAPANESE, CHINESE], ids=["japanese", "chinese"])
def test_a_cjk_character_is_a_little_less_than_one_token(text: str) -> None:
    """Text by character class: the same weight for each kana and Han character, whatever share of the text they are."""
    assert 0.75 * len(text) <= estimate_tokens(text) <= 0.9 * len(text)


@pytest.mark.parametrize("file", sorted(CORPUS.glob("*.txt")), ids=lambda file: file.stem)
def test_within_15_percent_of_o200k_on_the_corpus(file: Path) -> None:
    assert 0.85 <= ratio_to_o200k(file.read_text("utf-8")) <= 1.15


def test_the_corpus_covers_every_kind_of_text() -> None:
    kinds = {"chinese", "code", "emoji", "english", "japanese", "json", "korean"}
    assert {file.stem for file in CORPUS.glob("*.txt")} == kinds


def test_no_jump_where_half_the_text_is_kana() -> None:
    """A character more of kana moves the estimate by about a token, at 49% as at 51%."""
    estimates = [estimate_tokens("かな漢字文" * kana + "plain words" * (100 - kana)) for kana in range(101)]
    steps = [after - before for before, after in itertools.pairwise(estimates)]
    assert max(steps) - min(steps) <= 2


def test_the_empty_text_is_free_and_nothing_else_is() -> None:
    assert estimate_tokens("") == 0
    assert all(estimate_tokens(text) >= 1 for text in (" ", "\0", "a", "é", "\ud83d", "\u200b"))


@pytest.mark.parametrize("unit", ["a", " ", "\n ", "漢", "é ", "_", "/", "9", "🎉", "\0"])
def test_twice_the_text_is_twice_the_tokens(unit: str) -> None:
    """Linear across the blocks it works in: no block border is dropped or counted twice."""
    once, twice = estimate_tokens(unit * 70_000), estimate_tokens(unit * 140_000)
    assert abs(twice - 2 * once) <= 4


@given(st.text(max_size=400), st.text(max_size=400))
def test_a_longer_text_never_costs_much_less(left: str, right: str) -> None:
    whole = estimate_tokens(left + right)
    assert 0 <= whole <= estimate_tokens(left) + estimate_tokens(right) + 2
    assert whole >= 0.3 * (estimate_tokens(left) + estimate_tokens(right)) - 2
