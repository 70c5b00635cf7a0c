"""TCP proxies that do to a connection what a network, a firewall or a dying server would."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

COMMITTED = b"C\x00\x00\x00\x0bCOMMIT\x00"  # Postgres' CommandComplete: it has committed


class Proxy:
    """Forwards to `server_port` on this machine from a port of its own."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._silent: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(30)
        self.cut()

    def cut(self) -> None:
        """Ends every connection there is; new ones are forwarded."""
        with self._lock:
            for end in self._open:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def silence(self) -> None:
        """From now on nothing passes on the connections there are, and they stay open; new ones are forwarded."""
        with self._lock:
            self._silent |= self._open

    def passes(self, data: bytes) -> bool:
        """Whether this piece of the server's answer reaches the client; else the connection is cut."""
        return bool(data)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed: the test is over
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:  # the server is down, and looks so
                client.close()
                continue
            with self._lock:
                self._open |= {client, server}
            for source, target in ((client, server), (server, client)):
                threading.Thread(
                    target=self._pump, args=(source, target, source is server), daemon=True
                ).start()

    def _pump(self, source: socket.socket, target: socket.socket, from_server: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if from_server and not self.passes(data):
                    break
                if source not in self._silent:
                    target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class CuttingProxy(Proxy):
    """Before Postgres: cuts the client off just when its COMMIT has succeeded, every nth time, `most` times in all."""

    def __init__(self, server_port: int, every: int, most: int) -> None:
        super().__init__(server_port)
        self._every = every
        self._most = most
        self._commits = 0
        self.cuts = 0

    def passes(self, data: bytes) -> bool:
        if COMMITTED not in data:
            return True
        with self._lock:
            self._commits += 1
            cut = self._commits % self._every == 0 and self.cuts < self._most
            self.cuts += cut
        return not cut
