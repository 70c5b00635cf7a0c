"""Transport options that producers and workers share, by the broker's kind."""

from __future__ import annotations

from typing import Any

from jobs.file_broker import file_broker_options


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
