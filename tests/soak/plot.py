"""Small line charts side by side, as one SVG file. Hand-written: a plot is a few lines of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

COLUMNS = 3
WIDTH, HEIGHT = 300, 120  # of a chart
LEFT, TOP, GAP = 16, 34, 22
HEADER = 40
_STYLE = (
    "text{font:11px sans-serif;fill:#333}.title{font-weight:bold}.head{font-size:14px;font-weight:bold}"
    ".line{fill:none;stroke:#2563ab;stroke-width:1.5}.box{fill:#fff;stroke:#ccc}.settled{fill:#f1f5f9}"
)


def svg(title: str, minutes: Sequence[float], series: Mapping[str, Sequence[float]], settled: float) -> str:
    """One chart for each series, from zero up. What lies after the share `settled` of the time is shaded: it is judged."""
    rows = -(-len(series) // COLUMNS)
    width = COLUMNS * (WIDTH + GAP) + GAP
    height = HEADER + rows * (HEIGHT + TOP + GAP)
    charts = [
        _chart(number, name, minutes, values, settled) for number, (name, values) in enumerate(series.items())
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style>",
            f'<rect width="{width}" height="{height}" fill="#fff"/>',
            f'<text class="head" x="{LEFT}" y="26">{escape(title)}</text>',
            *charts,
            "</svg>\n",
        ]
    )


def _chart(number: int, name: str, minutes: Sequence[float], values: Sequence[float], settled: float) -> str:
    x = GAP + number % COLUMNS * (WIDTH + GAP)
    y = HEADER + number // COLUMNS * (HEIGHT + TOP + GAP) + TOP
    highest = max(*values, 0) or 1
    span = (minutes[-1] - minutes[0]) or 1
    points = " ".join(
        f"{x + (at - minutes[0]) / span * WIDTH:.1f},{y + HEIGHT - value / highest * (HEIGHT - 8):.1f}"
        for at, value in zip(minutes, values, strict=True)
    )
    told = f"{values[0]:,.6g} → {values[-1]:,.6g}, at most {max(values):,.6g}"
    return (
        f'<text class="title" x="{x}" y="{y - 18}">{escape(name)}</text><text x="{x}" y="{y - 5}">{told}</text>'
        f'<rect class="box" x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}"/>'
        f'<rect class="settled" x="{x + WIDTH * settled:.1f}" y="{y}" width="{WIDTH * (1 - settled):.1f}" height="{HEIGHT}"/>'
        f'<polyline class="line" points="{points}"/>'
        f'<text x="{x + WIDTH - 44}" y="{y + HEIGHT + 13}">{minutes[-1]:.0f} min</text>'
    )
