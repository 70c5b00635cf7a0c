"""The child that decodes one image or document. A program of its own: the worker never imports a decoder.

    python -I -S child.py REQUEST < FILE

REQUEST is JSON. The answer is one JSON line, then what the reader of that kind writes: further JSON lines, or an image's
bytes. A file that cannot be read is answered `{"error": …}`. The worker runs this in its sandbox, without network and
without any workspace, and takes nothing of the answer on trust.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import resource
import sys
import types
import warnings
from pathlib import Path
from typing import Any, BinaryIO

_PACKAGE = "worker.tools.decoding"


def limit(request: dict[str, Any]) -> None:
    """Memory and processor time of this process, for whatever the file makes a library do."""
    limits = {
        resource.RLIMIT_AS: request["memory_bytes"],
        resource.RLIMIT_CPU: request["cpu_seconds"],
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in limits.items():
        hard = resource.getrlimit(kind)[1]
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (most, most))


def load(name: str) -> Any:
    """A reader of this folder: the packages above it are not to be seen here, so empty ones stand for them."""
    if _PACKAGE not in sys.modules:
        names = _PACKAGE.split(".")
        for depth in range(1, len(names) + 1):
            package = types.ModuleType(".".join(names[:depth]))
            package.__path__ = [str(Path(__file__).parent)] if depth == len(names) else []
            sys.modules[package.__name__] = package
    return importlib.import_module(f"{_PACKAGE}.{name}")


def answer(request: dict[str, Any], file: BinaryIO, out: BinaryIO) -> None:
    """Read the file and write the answer, an error included."""
    refused = load("refused")
    try:
        load(request["reader"]).read(request, file, out)
    except refused.Refused as error:
        told = str(error)
    except MemoryError:
        told = "it needs more memory than a file may"
    except RecursionError:
        told = "it is nested too deeply"
    except Exception as error:  # noqa: BLE001  whatever a library makes of a hostile file
        told = f"it is damaged, or not what it says it is ({type(error).__name__}: {str(error)[:200]})"
    else:
        return
    out.write(b"\n" + json.dumps({"error": told}).encode() + b"\n")


def main() -> None:
    request = json.loads(sys.argv[1])
    limit(request)
    sys.path.append(request["packages"])
    warnings.simplefilter("ignore")
    with os.fdopen(os.dup(1), "wb") as out, os.fdopen(0, "rb") as file:
        os.dup2(2, 1)  # what a library prints is no answer
        held: BinaryIO = file if file.seekable() else io.BytesIO(file.read())
        answer(request, held, out)


if __name__ == "__main__":
    main()
