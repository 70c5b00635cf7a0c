"""Where a server of this machine listens, and whether it lets nobody in unasked."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
from dataclasses import dataclass
from pathlib import Path

_SECONDS = 5.0
_LISTENING = "0A"  # TCP_LISTEN, as the kernel's tables write it
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


@dataclass(frozen=True, slots=True)
class Gate:
    """What a server at a port of this machine answers to who has no credentials."""

    is_sostenuto: bool
    open_routes: tuple[str, ...] = ()
    """what it should have refused and did not"""


def listening_addresses(port: int) -> list[str] | None:
    """The local addresses at which something listens; None where the system does not tell (it does on Linux)."""
    found, told = [], False
    for table in _TABLES:
        with contextlib.suppress(OSError):
            for line in table.read_text("ascii").splitlines()[1:]:
                told = True
                address, state = line.split()[1], line.split()[3]
                host, _, number = address.partition(":")
                if state == _LISTENING and int(number, 16) == port:
                    found.append(_readable(host))
    return sorted(set(found)) if told else None


def _readable(host: str) -> str:
    """The kernel writes addresses as words of 32 bits in the machine's own byte order."""
    words = [int(host[at : at + 8], 16).to_bytes(4, "little") for at in range(0, len(host), 8)]
    return str(ipaddress.ip_address(b"".join(words)))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what would listen at `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def reaches_others(address: str) -> bool:
    """Whether other machines can reach what listens there."""
    return not ipaddress.ip_address(address).is_loopback


def knock(port: int) -> Gate | None:
    """Asks as a stranger would. None where nothing answers."""
    try:
        alive = _asked(port, "/healthz")
    except OSError:
        return None
    if alive[0] != 200 or "application/json" not in alive[1]:
        return Gate(is_sostenuto=False)
    refusals = {"/api/jobs": 401, "/api/audit": 401, "/": 401}
    opened = [
        path for path, status in refusals.items() if _asked(port, path)[0] not in (status, 303, 307, 404)
    ]
    if _asked(port, "/healthz", host="foreign.example")[0] != 421:
        opened.append("a foreign Host header")
    return Gate(is_sostenuto=True, open_routes=tuple(opened))


def open_flower_routes(port: int) -> list[str] | None:
    """What a Flower at this port shows to strangers; None where none answers."""
    try:
        if _asked(port, "/healthcheck")[0] != 200 or _asked(port, "/healthz")[0] == 200:
            return None
        return [path for path in ("/tasks", "/api/tasks", "/metrics") if _asked(port, path)[0] != 401]
    except OSError:
        return None


def _asked(port: int, path: str, host: str | None = None) -> tuple[int, str]:
    """Status and content type of one answer. Raises OSError."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_SECONDS)
    try:
        connection.request("GET", path, headers={"Host": host or f"127.0.0.1:{port}"})
        answer = connection.getresponse()
        return answer.status, answer.headers.get("content-type") or ""
    except (TimeoutError, http.client.HTTPException) as error:
        raise OSError(str(error)) from error
    finally:
        connection.close()
