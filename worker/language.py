"""The language that a job is written in: see `jobs.language`."""

from __future__ import annotations

from jobs.language import is_japanese

__all__ = ["is_japanese"]
