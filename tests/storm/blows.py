"""Which blows fall when: a pure function of the seed, so that a storm that broke something can be sent again."""

from __future__ import annotations

import random
from dataclasses import dataclass

from storage.crashpoints import CrashPoint

WARM_UP = 4.0  # seconds before the first blow
CALM_BEFORE_END = 2.0
MEAN_GAP = 2.0  # seconds between two blows

# What may happen, how often in relation to the others, and for how many seconds it lasts.
_WORKERS = {
    "worker.kill": (
        5,
        (0.0, 2.0),
    ),  # SIGKILL to the process and all its children; seconds until it is started again
    "worker.freeze": (4, (0.0, 0.0)),  # SIGSTOP past the lease, then SIGCONT: a zombie
    "worker.term": (3, (0.0, 1.0)),  # SIGTERM, as a deploy
    "worker.arm": (6, (0.0, 0.0)),  # replaced by one that dies, or stops, at a crash point
}
_BROKERS = {
    "broker.kill": (1, (0.2, 3.0)),  # SIGKILL; seconds until it is started again
    "broker.restart": (1, (0.0, 0.0)),
    "broker.flush": (2, (0.0, 0.0)),  # FLUSHALL
    "broker.freeze": (1, (2.0, 8.0)),  # SIGSTOP, SIGCONT
}
_PROXIED_BROKERS = {"broker.cut": (3, (0.0, 0.0)), "broker.silence": (1, (0.0, 0.0))}
_DATABASES = {
    "postgres": {
        "database.crash": (2, (0.1, 2.0)),  # an immediate shutdown; seconds until it is started again
        "database.cut": (2, (0.0, 0.0)),  # every connection is ended
        "database.freeze": (1, (1.0, 6.0)),
    },
    "sqlite": {"database.lock": (2, (0.5, 6.0))},  # another program holds the write lock
}
_MODELS = {
    "model.reset": (2, (0.5, 2.0)),  # connections end in the middle of a reply
    "model.stall": (1, (0.5, 2.0)),  # replies stop coming
    "model.error": (2, (0.5, 2.0)),  # 500
    "model.limit": (1, (0.5, 1.5)),  # 429 with Retry-After
}
# Where nobody passes by in a storm: submitters and hooks are in no worker process.
_NOT_ARMED = ("submit.", "control.", "hook.")
POINTS = [str(point) for point in CrashPoint if not point.startswith(_NOT_ARMED)]


@dataclass(frozen=True, slots=True)
class Blow:
    """One blow, `at` seconds after the start. `slot`: of the worker that it hits; `seconds`: how long it lasts."""

    at: float
    kind: str
    slot: int = -1
    seconds: float = 0.0
    crash_point: str = ""

    def __str__(self) -> str:
        told = [f"{self.at:8.2f} s  {self.kind:16}"]
        told += [f"worker {self.slot}"] if self.slot >= 0 else []
        told += [f"for {self.seconds:.2f} s"] if self.seconds else []
        told += [f"at {self.crash_point}"] if self.crash_point else []
        return "  ".join(told)


def plan(
    seed: int,
    duration: float,
    *,
    database: str,
    broker: str,
    workers: int,
    lease: float,
    gap: float = MEAN_GAP,
) -> list[Blow]:
    """The blows of a storm in order of time. The same arguments give the same blows, on every machine."""
    chance = random.Random(f"{seed}/{database}/{broker}")
    kinds = (
        _WORKERS | (_PROXIED_BROKERS if broker == "rabbitmq" else _BROKERS) | _DATABASES[database] | _MODELS
    )
    names = list(kinds)
    weights = [kinds[name][0] for name in names]
    blows: list[Blow] = []
    at = WARM_UP
    while at < duration - CALM_BEFORE_END:
        name = chance.choices(names, weights)[0]
        seconds = round(chance.uniform(*kinds[name][1]), 2)
        slot = chance.randrange(workers) if name.startswith("worker.") else -1
        if name == "worker.freeze":
            seconds = round(lease * chance.uniform(0.8, 2.0), 2)
        point = _crash_point(chance) if name == "worker.arm" else ""
        blows.append(Blow(round(at, 2), name, slot, seconds, point))
        at += chance.expovariate(1 / gap)
    return blows


def _crash_point(chance: random.Random) -> str:
    """The Nth time somewhere in a worker; one in five stops there and wakes as a zombie."""
    how = ":stop" if chance.random() < 0.2 else ""
    return f"{chance.choice(POINTS)}:{chance.randint(1, 4)}{how}"
