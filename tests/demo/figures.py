"""The rainfall report's figures, computed here a second time and in another way: exactly, in decimal fractions."""

from __future__ import annotations

import csv
import re
from decimal import Decimal
from pathlib import Path

INCH = Decimal("25.4")


def expected(table: Path, unit: str) -> list[str]:
    """A table's column of the report: four quarters, the year, the wettest and the driest month."""
    with table.open(encoding="utf-8", newline="") as file:
        (_, _), *rows = csv.reader(file)
    months = [(month, Decimal(amount)) for month, amount in rows]
    amounts = [amount for _, amount in months]
    wettest, driest = (choose(months, key=lambda row: row[1]) for choose in (max, min))
    sums = [sum(amounts[start : start + 3], Decimal(0)) for start in range(0, 12, 3)]
    return [
        *(_written(total, unit) for total in [*sums, sum(amounts, Decimal(0))]),
        *(f"{month}: {_written(amount, unit)}" for month, amount in (wettest, driest)),
    ]


def reported(report: str) -> tuple[list[str], list[str]]:
    """The columns of Tokyo and of Heathrow in the report's table, below its heading."""
    rows = [
        [cell.strip(" *") for cell in line.strip("|").split("|")]
        for line in report.splitlines()
        if line.startswith("|")
    ]
    return [row[1] for row in rows[2:]], [row[2] for row in rows[2:]]


def unit_named(report: str) -> str:
    found = re.search(r"in (inches|millimetres)\.", report)
    assert found, report
    return found[1]


def _written(millimetres: Decimal, unit: str) -> str:
    return f"{millimetres / INCH:.2f}" if unit == "inches" else f"{millimetres:.1f}"
