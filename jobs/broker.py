"""Transport options that producers and workers share, by the broker's kind."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from jobs.file_broker import file_broker_options

_PORTS = {"redis": 6379, "rediss": 6379, "amqp": 5672, "amqps": 5671}
_CONNECT_SECONDS = 1.0


def broker_options(url: str) -> dict[str, Any]:
    """kombu's transport options for the broker at `url`."""
    scheme = url.partition("://")[0]
    if scheme.startswith("redis"):
        return {
            "visibility_timeout": 3600,
            "health_check_interval": 10,
            "socket_timeout": 30,
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
            "client_name": "sostenuto",
        }
    if scheme in ("amqp", "amqps", "pyamqp"):
        return {"confirm_publish": True}
    if scheme == "filesystem":
        return file_broker_options(url)
    return {}


def answers(url: str) -> bool:
    """Whether something listens where the broker is."""
    parts = urlsplit(url)
    try:
        if parts.scheme == "filesystem":
            return Path(unquote(parts.path)).is_dir()
        if parts.scheme == "redis+socket":
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(_CONNECT_SECONDS)
                probe.connect(unquote(parts.path))
        else:
            port = parts.port or _PORTS.get(parts.scheme, 6379)
            socket.create_connection((parts.hostname or "127.0.0.1", port), _CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
