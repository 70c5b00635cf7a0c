"""A TCP proxy that cuts connections where a test says: the network between a client and its server."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable

_BLOCK = 4096


class Proxy:
    """Forwards to a port of this machine. `cuts`: for each coming connection, after how many bytes of answers it is
    cut (0: the server has the request, the client no answer); when they are used up, connections are left alone."""

    def __init__(self, port: int) -> None:
        self._to = ("127.0.0.1", port)
        self.cuts: deque[int] = deque()
        self.connections = 0
        self.before: Callable[[], None] = lambda: None  # called at each connection, before it is forwarded
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            self.before()
            cut = self.cuts.popleft() if self.cuts else None
            try:
                server = socket.create_connection(self._to)
            except OSError:
                client.close()
                continue
            threading.Thread(target=self._forward, args=(client, server, None), daemon=True).start()
            threading.Thread(target=self._forward, args=(server, client, cut), daemon=True).start()

    @staticmethod
    def _forward(source: socket.socket, target: socket.socket, left: int | None) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(_BLOCK):
                if left is not None:
                    block = block[:left]
                    left -= len(block)
                target.sendall(block)
                if left == 0:
                    break
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
