"""The templates and what they may use. Everything that is put into one is escaped and made neutral first."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, tzinfo
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from jobs.durations import format_duration
from jobs.web.safe_text import clipped, is_long, markdown, neutral, shortened
from jobs.web.waterfall import short_time
from jobs.web.words import LANGUAGES, Words
from jobs.workspace import human

HERE = Path(__file__).parent
ASSETS = HERE / "assets"


def _finalize(value: Any) -> Any:
    """Each value of an expression: text becomes neutral, whoever wrote it; what is markup already was made so."""
    if value is None:
        return ""
    return value if isinstance(value, Markup) or not isinstance(value, str) else neutral(value)


@cache
def environment() -> jinja2.Environment:
    """Autoescaped, strict about names that are not there."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "markdown": markdown,
        "clipped": clipped,
        "shortened": shortened,
        "is_long": is_long,
        "bytes": human,
        "count": lambda number: f"{number:,}",
        "amount": amount,
        "compact": compact,
        "duration": format_duration,
        "iso": _iso,
        "stamp": _stamp,
        "combined": lambda one, other: {**one, **other},
    }
    made.globals |= {"asset": asset_url, "languages": LANGUAGES, "short_time": short_time}
    return made


def render(template: str, words: Words, zone: tzinfo, **values: Any) -> str:
    """A template's text, in the words' language; times are in `zone` until the browser shows its own."""
    return environment().get_template(template).render(t=words, zone=zone, **values)


@cache
def asset_url(name: str) -> str:
    """The URL of an asset, which changes with its content: browsers may keep it for ever."""
    digest = hashlib.sha256((ASSETS / name).read_bytes()).hexdigest()[:12]
    return f"/assets/{name}?v={digest}"


def amount(value: float) -> str:
    """A cost: as many digits as tell something."""
    return f"{value:,.2f}" if value >= 1 or not value else f"{value:.4f}".rstrip("0").ljust(4, "0")


def compact(number: int) -> str:
    """A number in three digits or so: 873, 5.2k, 48k, 1.2M."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= size - size // 2_000:
            value = number / size
            return f"{value:.1f}{unit}" if value < 9.95 else f"{value:,.0f}{unit}"
    return str(number)


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _stamp(seconds: float, zone: tzinfo) -> str:
    return f"{datetime.fromtimestamp(seconds, zone):%Y-%m-%d %H:%M:%S}"
