"""A TCP proxy before Postgres that cuts the client off just when its COMMIT has succeeded."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

COMMITTED = b"C\x00\x00\x00\x0bCOMMIT\x00"  # CommandComplete: the server has committed


class CuttingProxy:
    """Forwards to `port`; every nth COMMIT that succeeds is never heard of by the client."""

    def __init__(self, port: int, every: int) -> None:
        self._server_port = port
        self._every = every
        self._commits = 0
        self.cuts = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="cutting-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(30)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed: the test is over
                return
            server = socket.create_connection(("127.0.0.1", self._server_port))
            for source, target, watched in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pump, args=(source, target, watched), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, watched: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if watched and COMMITTED in data and self._is_cut():
                    break
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _is_cut(self) -> bool:
        with self._lock:
            self._commits += 1
            cut = self._commits % self._every == 0
            self.cuts += cut
            return cut
