"""`python -m worker.model`: asks the configured model one short question, and tells what came as one line of JSON."""

from __future__ import annotations

import json
import sys

from jobs.errors import SostenutoError
from jobs.settings_sources import load_settings
from worker.cancel import CancelToken
from worker.model.errors import ModelError
from worker.model.opening import open_model
from worker.model.routes import route_of
from worker.model.types import ModelRequest

_MESSAGES = [
    {"role": "system", "content": "You answer with one word."},
    {"role": "user", "content": "Say OK."},
]


def main() -> int:
    """Always tells: a refusal is a line too. `kind` is null when the model answered."""
    told: dict[str, str | None]
    try:
        settings = load_settings()
        route = route_of(settings, settings.model or "")
        request = ModelRequest(route.wire_name, _MESSAGES, [], 64, "doctor/0/0")
        reply = open_model(settings, settings.model or "").complete(request, CancelToken())
    except ModelError as error:
        told = {"kind": str(error.kind), "text": str(error), "hint": error.hint}
    except SostenutoError as error:
        told = {"kind": "configuration", "text": str(error), "hint": error.hint}
    else:
        told = {"kind": None, "text": f"{route.address} answers as {reply.model}", "hint": None}
    sys.stdout.write(json.dumps(told) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
