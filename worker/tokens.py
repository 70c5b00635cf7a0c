"""How many tokens a text costs, without a tokenizer.

The budget code asks this for every message of every request, in every language, before any server has
answered; a real tokenizer would bring a vocabulary of megabytes for one vendor's models. So ASCII is cut into
pieces of about one token each, the way byte-pair tokenizers pre-split it, and every other character has the
weight of its class.

Measured against o200k_base over `benchmarks/corpus` (`python -m benchmarks.estimates`): English, code, JSON and
logs, Japanese, Chinese, Korean and emoji within 15%, tables of hashes within 7%. Kana and Han characters count 0.8
tokens each: o200k needs 0.7 on average, and a prompt that is refused costs more than one compacted early. Older
vocabularies need up to 1.5: a server's own `prompt_tokens` calibrates the estimate once it is known.
"""

from __future__ import annotations

import re
from functools import lru_cache

# Each match is about one token. Every quantifier is bounded and no two alternatives compete for long, so
# matching is linear whatever the input. A blank before a character beyond ASCII matches nothing: it belongs
# to that word.
_ASCII_PIECES = re.compile(
    r"""(?=[\x00-\x7f]) (?:                          # a cheap test first: most of a Japanese text ends here
      [ !-/:-@\[-`{-~]? [A-Z]? [a-z]{1,9}           # a word with the blank, dot, bracket before it
    | [ !-/:-@\[-`{-~]? [A-Z]{1,3}                  # capitals: abbreviations, constants, base64
    | [0-9]{1,3}
    | -{3,64} | ={3,64} | _{3,64} | \*{3,64} | \#{3,64} | \.{3,64}      # rulers
    | [ ]? [!-/:-@\[-`{-~]{1,2} [\r\n]{0,8}         # punctuation, swallowing the line's end
    | \s{0,32} [\r\n]{1,8}                          # line ends with the blanks before them
    | \s{1,32} (?=\s) | \s (?![^\x00-\x7f])  # indentation; its last blank belongs to the next word
    | [\x00-\x08\x0e-\x1f\x7f]{1,2}
    )""",
    re.VERBOSE | re.ASCII,
)
# Beyond ASCII: the runs of a class, and the tokens of one of its characters.
_WEIGHTS = (
    (re.compile("[\u2e80-\u312f\u3190-\uabff\uf900-\ufaff\ufe30-\uffef]+"), 0.8),  # kana, Han, full width
    (re.compile("[\u1100-\u11ff\u3130-\u318f\uac00-\ud7ff]+"), 0.7),  # Hangul
    (re.compile("[\u0370-\u109f\u1200-\u1fff]+"), 0.3),  # Greek, Cyrillic, Arabic, Hindi, Thai and the like
    (re.compile("[\U00010000-\U0010ffff]+"), 1.5),  # emoji, rare Han
    (re.compile("[\x80-\u036f\u10a0-\u10ff\u2000-\u2e7f\ud800-\uf8ff\ufb00-\ufe2f]+"), 1.0),  # the rest
)
_BLOCK = 1 << 16
_MOST_REMEMBERED = 1 << 14  # characters of a text whose estimate is kept: at most 16 MB in all


def estimate_tokens(text: str) -> int:
    """About how many tokens `text` is: 0 only for the empty text, linear in its length, never failing.

    Not exact: random letters, or a vocabulary very unlike the usual ones, may be off by half.
    """
    ascii_only = text.isascii()
    total = 0.0
    for start in range(0, len(text), _BLOCK):  # blocks bound the memory the matches take
        end = start + _BLOCK
        total += len(_ASCII_PIECES.findall(text, start, end))
        if not ascii_only:
            for runs, weight in _WEIGHTS:
                total += weight * sum(map(len, runs.findall(text, start, end)))
    return max(round(total), 1) if text else 0


def estimate_again(text: str) -> int:
    """`estimate_tokens` for a text that is likely to come again, as tool schemas and earlier messages do."""
    return _remembered(text) if len(text) <= _MOST_REMEMBERED else estimate_tokens(text)


_remembered = lru_cache(maxsize=1024)(estimate_tokens)
