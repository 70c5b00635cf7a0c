"""Flower over this installation: with a password, read-only, and nothing kept on disk.

It is a view of the tasks that workers tell the broker of, since it was started; the page and the API know the truth.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jobs.embedded import BrokerKeeper
from jobs.errors import UsageError
from jobs.installation import broker_url
from jobs.listening import is_loopback
from jobs.plain_logs import plain_logs
from jobs.settings import Settings
from jobs.wakeups import monitoring_app
from storage.masking import register_secrets

USER = "sostenuto"
COLUMNS = "name,state,args,kwargs,worker,received,runtime,uuid"
MOST_TASKS = 10_000  # of the newest, in memory
INSPECT_SECONDS = 2.0


def password_file(settings: Settings) -> Path:
    """Where the password lies that is made when none is set."""
    return settings.data_dir / "run" / "flower-password"


def password(settings: Settings) -> str:
    """The one that is set, else the installation's own, which is made here once and for all.

    Raises UsageError where that can be neither read nor made.
    """
    if settings.flower_password is not None:
        return settings.flower_password.get_secret_value()
    file = password_file(settings)
    try:
        return _made_once(file)
    except OSError as error:
        why = (error.strerror or "unknown reason").lower()
        raise UsageError(
            f"the password cannot be kept in {file}: {why}", hint="set SOSTENUTO_FLOWER_PASSWORD_FILE"
        ) from None


def _made_once(file: Path) -> str:
    if not file.exists():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = file.with_name(f"{file.name}-{os.getpid()}")
        made.touch(mode=0o600)
        made.write_text(secrets.token_urlsafe(24))
        with contextlib.suppress(FileExistsError):  # another program was faster: its password counts
            file.hardlink_to(made)
        made.unlink()
    return file.read_text()


def serve_flower(
    settings: Settings,
    host: str,
    port: int,
    *,
    url_prefix: str = "",
    allow_remote: bool,
    listening: Callable[[str], None],
) -> None:
    """Serves until SIGINT or SIGTERM. `listening` is told the URL; port 0 takes a free one.

    Raises UsageError for an address that other machines reach, unless `allow_remote`, and for one that cannot be had;
    EmbeddedBrokerError where the installation's own broker does not come up.
    """
    if not allow_remote and not is_loopback(host):
        raise UsageError(
            f"{host} can be reached from other machines, and Flower speaks plain HTTP",
            hint="put a proxy with TLS before 127.0.0.1, or confirm with --allow-remote",
        )
    register_secrets([*settings.secrets(), password(settings)])
    with _broker(settings):
        prefix = url_prefix.strip("/")
        app = _application(settings, host, port, prefix)
        try:
            taken = app.start_http_server()
        except OSError as error:
            why = (error.strerror or "unknown reason").lower()
            raise UsageError(
                f"cannot listen on {host} port {port}: {why}", hint="choose another --port"
            ) from None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: app.io_loop.add_callback_from_signal(app.stop))
        plain_logs(as_json=settings.log_format == "json")
        shown = f"[{host}]" if ":" in host else host
        listening(f"http://{shown}:{taken}/{prefix + '/' if prefix else ''}")
        app.start()


@contextlib.contextmanager
def _broker(settings: Settings) -> Iterator[None]:
    """The embedded broker is kept running, as each worker keeps it."""
    if not settings.embedded_broker:
        yield
        return
    keeper = BrokerKeeper(settings.data_dir)
    keeper.start()
    try:
        yield
    finally:
        keeper.stop()


def _application(settings: Settings, host: str, port: int, prefix: str) -> Any:
    from flower.app import Flower
    from flower.options import default_options as options
    from flower.urls import settings as web_settings
    from flower.utils import prepend_url
    from flower.views.monitor import Metrics
    from tornado.web import authenticated

    chosen = {
        "address": host,
        "port": port,
        "basic_auth": [f"{USER}:{password(settings)}"],
        "read_only": True,
        "persistent": False,
        "max_tasks": MOST_TASKS,
        "tasks_columns": COLUMNS,
        "inspect_timeout": INSPECT_SECONDS * 1000,
        "purge_offline_workers": 3600,
        "url_prefix": prefix or None,
    }
    for name, value in chosen.items():
        setattr(options, name, value)
    if prefix:
        for name in ("login_url", "static_url_prefix"):
            web_settings[name] = prepend_url(web_settings[name], prefix)

    class LockedMetrics(Metrics):  # type: ignore[misc]  # as above
        """Flower's own show them to strangers."""

        @authenticated
        async def get(self) -> None:
            await super().get()

    app = Flower(capp=monitoring_app(broker_url(settings)), options=options, **web_settings)
    app.add_handlers(".*", [(f"/{prefix}/metrics" if prefix else "/metrics", LockedMetrics)])
    return app
