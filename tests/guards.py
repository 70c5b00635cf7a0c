"""Guards over every test: nothing but loopback is reached, the environment is clean, CI skips nothing."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

CLEARED_PREFIXES = ("OPENAI_", "SOSTENUTO_")
RABBITMQ_ADDRESS = ("127.0.0.1", 5672)


class OutsideConnection(OSError):
    """A test tried to reach an address that is not loopback."""


def is_local(family: int, address: object) -> bool:
    """Unix sockets, loopback addresses and the name localhost."""
    if family == getattr(socket, "AF_UNIX", None):
        return True
    if family not in (socket.AF_INET, socket.AF_INET6):
        return False
    host = str(address[0]) if isinstance(address, tuple) else str(address)
    if host in ("localhost", ""):
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def guard_network(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make every connect of this process to an outside address raise; returns the list of what was tried.

    Covers Python's sockets, not those that a C library opens itself (libpq) nor child processes.
    """
    tried: list[str] = []

    def guarded(original: Callable[..., Any], position: int) -> Callable[..., Any]:
        def call(sock: socket.socket, *arguments: Any) -> Any:
            if not is_local(sock.family, arguments[position]):
                tried.append(repr(arguments[position]))
                raise OutsideConnection(f"a test may not reach {arguments[position]!r}")
            return original(sock, *arguments)

        return call

    for name, position in (("connect", 0), ("connect_ex", 0), ("sendto", -1)):
        monkeypatch.setattr(socket.socket, name, guarded(getattr(socket.socket, name), position))
    return tried


@pytest.fixture(autouse=True)
def no_outside_connections(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails a test that tried to reach the outside, even where its code swallowed the error."""
    tried = guard_network(monkeypatch)
    yield
    if tried and request.node.get_closest_marker("outside_network") is None:
        pytest.fail(f"the test tried to reach {', '.join(tried)}")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own keys, endpoints, settings and proxies are invisible to tests and their children."""
    for name in list(os.environ):
        if name.startswith(CLEARED_PREFIXES) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a skipped test is a failed one: what cannot run there must be deselected by name, not pass unseen."""
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a module that skips itself while it is collected."""
    report = yield
    _refuse_skip(report)
    return report


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where every test must run: {report.longrepr}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the RabbitMQ tests where no server answers on its usual port, and those with a real model always,
    unless they were asked for by name."""
    for mark in ("rabbitmq", "real_model", "local_model"):
        marked = [item for item in items if item.get_closest_marker(mark)]
        wanted = mark in config.option.markexpr or (mark == "rabbitmq" and _listens(RABBITMQ_ADDRESS))
        if marked and not wanted:
            config.hook.pytest_deselected(items=marked)
            items[:] = [item for item in items if item not in marked]


def _listens(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=2).close()
    except OSError:
        return False
    return True
