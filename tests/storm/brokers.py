"""The brokers that a storm strikes: a server of its own, the embedded one of the data folder, or the machine's RabbitMQ."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import redis

from jobs.embedded import embedded_broker_url
from jobs.embedded_server import answering_pid, known_socket
from tests.resilience.proxies import Proxy
from tests.servers.redis import RedisServer, redis_binary, valkey_binary
from tests.servers.session import ServerSession

BROKERS = ("valkey", "redis", "embedded", "rabbitmq")
RABBITMQ_PORT = 5672
Wait = Callable[[float], object]


class Broker(Protocol):
    """`url` is what the workers are told; None: they start one themselves."""

    url: str | None

    def strike(self, how: str, seconds: float, wait: Wait) -> None:
        """Carries out a blow of this kind, and what ends it."""
        ...

    def client(self) -> redis.Redis: ...

    def close(self) -> None: ...


def open_broker(kind: str, session: ServerSession, data: Path) -> Broker:
    """A running broker of the kind; the embedded one is the workers' to start."""
    if kind == "rabbitmq":
        return RabbitMq()
    if kind == "embedded":
        return EmbeddedBroker(data)
    return ServerBroker(RedisServer(session, valkey_binary() if kind == "valkey" else redis_binary()))


class ServerBroker:
    """A Valkey or Redis that is somebody else's to start again."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        server.start()
        self.url: str | None = server.url

    def client(self) -> redis.Redis:
        return self._server.client()

    def strike(self, how: str, seconds: float, wait: Wait) -> None:
        match how:
            case "kill":
                self._server.kill()
                wait(seconds)
                self._server.start()
            case "restart":
                self._server.restart()
            case "flush":
                self._server.flush()
            case "freeze":
                self._server.freeze()
                wait(seconds)
                self._server.thaw()

    def close(self) -> None:
        self._server.kill()


class EmbeddedBroker:
    """The private Valkey that the workers start, watch, and start again."""

    url: str | None = None

    def __init__(self, data: Path) -> None:
        self._data = data

    def client(self) -> redis.Redis:
        address = embedded_broker_url(self._data).removeprefix("redis+socket")
        return redis.Redis.from_url(f"unix{address}", socket_timeout=10)

    def strike(self, how: str, seconds: float, wait: Wait) -> None:
        if how == "flush":
            with contextlib.suppress(redis.RedisError), contextlib.closing(self.client()) as client:
                client.flushall()  # where it is away just now, what it had is gone all the same
            return
        socket = known_socket(self._data / "run")
        pid = None if socket is None else answering_pid(socket, 1.0)
        if pid is None:  # struck already: its workers are about to start it again
            return
        with contextlib.suppress(ProcessLookupError):  # its workers may end a frozen one themselves
            if how == "freeze":
                os.kill(pid, signal.SIGSTOP)
                wait(seconds)
                os.kill(pid, signal.SIGCONT)
            else:
                os.kill(pid, signal.SIGKILL if how == "kill" else signal.SIGTERM)

    def close(self) -> None:
        """It ends with the session that the workers belong to."""


class RabbitMq:
    """The RabbitMQ of this machine, in a virtual host of the storm's own, behind a proxy that can be cut."""

    def __init__(self) -> None:
        self._exits = ExitStack()
        self._proxy = self._exits.enter_context(Proxy(RABBITMQ_PORT))
        name = f"sostenuto-test-{os.getpid()}-{uuid.uuid4().hex}"
        _rabbitmqctl("add_vhost", name)
        self._exits.callback(_rabbitmqctl, "delete_vhost", name)
        _rabbitmqctl("set_permissions", "-p", name, "guest", ".*", ".*", ".*")
        self.url: str | None = f"amqp://guest:guest@127.0.0.1:{self._proxy.port}/{name}"

    def client(self) -> redis.Redis:
        raise NotImplementedError("RabbitMQ speaks another language")

    def strike(self, how: str, seconds: float, wait: Wait) -> None:
        if how == "cut":
            self._proxy.cut()
        else:
            self._proxy.silence()

    def close(self) -> None:
        self._exits.close()


def _rabbitmqctl(*arguments: str) -> None:
    subprocess.run(["rabbitmqctl", *arguments], check=True, capture_output=True)
