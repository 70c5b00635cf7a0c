"""Serving the API: where it listens, and what it refuses to listen on."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection

import uvicorn

from jobs.api.application import create_app
from jobs.errors import UsageError
from jobs.installation import Installation
from jobs.listening import is_loopback
from jobs.plain_logs import plain_logs
from jobs.tracing import start_tracing, stop_tracing

SHUTDOWN_SECONDS = 5


def serve(
    installation: Installation,
    host: str,
    port: int,
    *,
    allow_remote: bool,
    names: Collection[str],
    listening: Callable[[str], None],
) -> None:
    """Serves until SIGINT or SIGTERM. `listening` is told the URL once the port is ours; port 0 takes a free one.

    Raises UsageError for an address that other machines reach, unless `allow_remote`, and for one that cannot be had.
    """
    if not allow_remote and not is_loopback(host):
        raise UsageError(
            f"{host} can be reached from other machines, and this server speaks plain HTTP",
            hint="put a proxy with TLS before 127.0.0.1, or confirm with --allow-remote",
        )
    bound = _bind(host, port)
    shown = f"[{host}]" if ":" in host else host
    listening(f"http://{shown}:{bound.getsockname()[1]}")
    start_tracing(installation.settings, "sostenuto-web")
    config = uvicorn.Config(
        create_app(installation, {shown, *names}),
        log_level="warning",
        access_log=False,  # paths and addresses are nobody's business unasked
        server_header=False,
        proxy_headers=False,  # nobody may say who it is by a header
        ws="none",
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    plain_logs(as_json=installation.settings.log_format == "json")
    try:
        with bound:
            uvicorn.Server(config).run(sockets=[bound])
    finally:
        stop_tracing()


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(2048)
        except BaseException:
            bound.close()
            raise
    except OSError as error:
        why = error.strerror or os.strerror(error.errno or 0)
        raise UsageError(
            f"cannot listen on {host} port {port}: {why.lower()}", hint="choose another --port"
        ) from None
    return bound
