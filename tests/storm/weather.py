"""Carries out a plan of blows, each at its time, and restores calm at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from tests.servers.processes import signal_tree
from tests.storm.blows import Blow
from tests.storm.mind import Mind
from tests.storm.site import Site
from tests.strict_endpoint import Answer, ChatRequest, HttpFailure, StreamFailure
from tests.strict_endpoint.minds import error_body

BROKEN_REPLIES = 4  # that a blow to the model's connections breaks off
RETRY_AFTER = "1"
LONGEST_DATABASE_START = 30.0


class Sky:
    """The endpoint's mind while a storm may make it fail for a while."""

    def __init__(self, mind: Mind) -> None:
        self.mind = mind
        self._until = {500: 0.0, 429: 0.0}

    def fail(self, status: int, seconds: float) -> None:
        self._until[status] = time.monotonic() + seconds

    def clear(self) -> None:
        self._until = dict.fromkeys(self._until, 0.0)

    def __call__(self, request: ChatRequest) -> Answer:
        now = time.monotonic()
        if self._until[429] > now:
            body = error_body("slow down", "rate_limit_exceeded")
            return HttpFailure(429, body, {"Retry-After": RETRY_AFTER})
        if self._until[500] > now:
            return HttpFailure(500, error_body("the server had an error", "server_error"))
        return self.mind(request)


class Weather:
    """Blows on a site. Those of one target come one after the other, however long each takes."""

    def __init__(self, site: Site, sky: Sky) -> None:
        self._site = site
        self._sky = sky
        self.over = threading.Event()
        self._locks = {name: threading.Lock() for name in ("broker", "database", "model")}
        self.counts: Counter[str] = Counter()
        self.failed: list[str] = []  # blows that could not be carried out

    def blow(self, blows: Iterable[Blow], began: float) -> None:
        """Returns when all have fallen and what they stopped goes on again. `began`: of the monotonic clock."""
        with ThreadPoolExecutor(max_workers=16, thread_name_prefix="blow") as hands:
            for blow in blows:
                if self.over.wait(max(0.0, began + blow.at - time.monotonic())):
                    return
                hands.submit(self._strike, blow)

    def stop(self) -> None:
        """No further blow falls."""
        self.over.set()

    def calm(self) -> None:
        """Workers that would still die are replaced; the model answers."""
        self._sky.clear()
        with ThreadPoolExecutor(max_workers=len(self._site.slots)) as hands:
            list(hands.map(lambda slot: slot.calm(), self._site.slots))

    def _strike(self, blow: Blow) -> None:
        target, _, how = blow.kind.partition(".")
        try:
            if target == "worker":
                slot = self._site.slots[blow.slot]
                if how == "arm":
                    slot.arm(blow.crash_point)
                else:
                    getattr(slot, how)(blow.seconds)
            else:
                with self._locks[target]:
                    acts: dict[str, Callable[[str, float], None]] = {
                        "broker": lambda how, seconds: self._site.broker.strike(how, seconds, self.over.wait),
                        "database": self._database,
                        "model": self._model,
                    }
                    acts[target](how, blow.seconds)
            self.counts[blow.kind] += 1
        except Exception as error:  # noqa: BLE001 - told at the end; the storm goes on
            self.failed.append(f"{blow}: {type(error).__name__}: {error}")

    def _database(self, how: str, seconds: float) -> None:
        postgres = self._site.postgres
        if postgres is None:
            self._hold_write_lock(seconds)
            return
        match how:
            case "crash":
                os.kill(postgres.pid, signal.SIGQUIT)  # an immediate shutdown: recovery at the next start
                self.over.wait(seconds)
                postgres.restart()
            case "cut":
                postgres.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                    " AND backend_type = 'client backend'"
                )
            case "freeze":
                signal_tree(postgres.pid, signal.SIGSTOP)
                self.over.wait(seconds)
                signal_tree(postgres.pid, signal.SIGCONT)

    def _hold_write_lock(self, seconds: float) -> None:
        """As another program does that writes for long, or was stopped while it wrote."""
        url = self._site.installation.db.url
        with contextlib.closing(
            sqlite3.connect(str(url.database), timeout=LONGEST_DATABASE_START, isolation_level=None)
        ) as connection:
            connection.execute("BEGIN IMMEDIATE")
            self.over.wait(seconds)
            connection.execute("ROLLBACK")

    def _model(self, how: str, seconds: float) -> None:
        match how:
            case "reset":
                self._site.endpoint.fail(StreamFailure(2, "cut"), times=BROKEN_REPLIES)
            case "stall":
                self._site.endpoint.fail(StreamFailure(2, "hang"), times=BROKEN_REPLIES)
            case "error":
                self._sky.fail(500, seconds)
            case "limit":
                self._sky.fail(429, seconds)
