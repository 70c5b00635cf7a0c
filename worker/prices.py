"""What a model's reply cost, by the table of prices in the settings."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from jobs.model_settings import Price
from worker.model.scripted import PREFIX

_FREE = Price(input=0, output=0)
_MILLION = 1_000_000


def price_of(prices: Mapping[str, Price], model: str) -> Price | None:
    """The first entry that fits the model's name; None where there is none. Scripted models are free."""
    fitting = (price for glob, price in prices.items() if fnmatchcase(model, glob))
    return next(fitting, _FREE if model.startswith(PREFIX) else None)


def cost_of(
    prices: Mapping[str, Price], model: str, prompt: int, completion: int, cached: int | None
) -> float | None:
    """The cost of one call in the table's currency; None where the model has no price.

    `prompt` counts all tokens of the request, `cached` those of them that the endpoint had cached.
    """
    return cost_at(price_of(prices, model), prompt, completion, cached)


def cost_at(price: Price | None, prompt: int, completion: int, cached: int | None) -> float | None:
    """The cost of one call at a price; see `cost_of`."""
    if price is None:
        return None
    known = min(cached or 0, prompt)
    cached_price = price.input if price.cached_input is None else price.cached_input
    return ((prompt - known) * price.input + known * cached_price + completion * price.output) / _MILLION
