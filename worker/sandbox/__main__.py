"""`python -m worker.sandbox`: what sandbox a worker would have here, as one line of JSON, attacked as at a worker's start."""

from __future__ import annotations

import json
import sys

from jobs.errors import SostenutoError
from jobs.settings_sources import load_settings
from worker.sandbox.detect import detect


def main() -> int:
    """Always tells: a refusal is a line too."""
    try:
        sandbox = detect(load_settings())
    except SostenutoError as error:
        told = {"level": None, "description": str(error), "hint": error.hint}
    else:
        told = {"level": str(sandbox.level), "description": sandbox.description, "hint": None}
    sys.stdout.write(json.dumps(told) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
