"""`python -m benchmarks.estimates`: the token estimator beside a real tokenizer (o200k_base), on benchmarks/corpus."""

from __future__ import annotations

import sys
from pathlib import Path

import quicktok

from worker.tokens import estimate_tokens

CORPUS = Path(__file__).parent / "corpus"


def ratio_to_o200k(text: str) -> float:
    """The estimate divided by the tokenizer's count."""
    return estimate_tokens(text) / len(quicktok.get_encoding("o200k_base").encode_ordinary(text))


def main() -> int:
    print(f"{'text':10} {'characters':>10} {'estimate / o200k':>17}")
    for file in sorted(CORPUS.glob("*.txt")):
        text = file.read_text("utf-8")
        print(f"{file.stem:10} {len(text):10,} {ratio_to_o200k(text):17.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
