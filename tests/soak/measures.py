"""What is measured, and how much of it may grow."""

from __future__ import annotations

from pathlib import Path

import redis
import sqlalchemy as sa

from storage.models import metadata
from tests.soak.trend import Allowance
from tests.storm.site import Site

MEBIBYTE = 1024 * 1024
# These have rows for each job, on purpose: what is measured is how many a job has.
OF_JOBS = (
    "job_inputs",
    "runs",
    "job_events",
    "comments",
    "messages",
    "tool_calls",
    "summaries",
    "plans",
    "images",
    "audit_log",
)
PER_JOB = " a job"


def sample(site: Site) -> dict[str, float]:
    """One look at everything, as measure → value."""
    found: dict[str, float] = {}
    for slot in site.slots:
        found |= _process(f"worker {slot.number}", slot.process.pid)
    return found | _broker(site) | _database(site) | _tables(site)


def allowance(measure: str) -> Allowance:
    """How much it may rise in the time that is judged."""
    if "MiB" in measure:
        return Allowance(share=0.08, amount=4)
    if measure.endswith(PER_JOB):
        return Allowance(share=0.1, amount=0.1)
    if measure in ("jobs", "jobs open"):
        return Allowance(share=1e9)  # the load itself
    return Allowance(share=0.05, amount=2)


def _process(name: str, pid: int) -> dict[str, float]:
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
    )
    return {
        f"{name}: memory, MiB": int(status["VmRSS"].split()[0]) / 1024,
        f"{name}: threads": float(status["Threads"]),
        f"{name}: open files": float(len(list(Path(f"/proc/{pid}/fd").iterdir()))),
    }


def _broker(site: Site) -> dict[str, float]:
    client: redis.Redis = site.broker.client()
    try:
        memory, clients = client.info("memory"), client.info("clients")
        return {
            "broker: keys": float(client.dbsize()),
            "broker: memory, MiB": memory["used_memory"] / MEBIBYTE,
            "broker: connections": float(clients["connected_clients"]),
        }
    finally:
        client.close()


def _database(site: Site) -> dict[str, float]:
    db = site.installation.db
    if db.is_sqlite:
        wal = Path(f"{db.url.database}-wal")
        return {"SQLite's WAL, MiB": wal.stat().st_size / MEBIBYTE if wal.exists() else 0.0}
    connections = sa.text("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sostenuto'")
    with db.read() as conn:
        return {"database connections": float(conn.execute(connections).scalar_one())}


def _tables(site: Site) -> dict[str, float]:
    """Rows of each table; of those that grow with the jobs, rows a job."""
    found = {}
    with site.installation.db.read() as conn:
        for table in metadata.sorted_tables:
            found[table.name] = float(
                conn.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
            )
        size = _size(conn)
    jobs = max(found.pop("jobs"), 1.0)
    rows = {f"rows of {name}": count for name, count in found.items() if name not in OF_JOBS}
    rows |= {f"rows of {name}{PER_JOB}": found[name] / jobs for name in OF_JOBS if name in found}
    return {"jobs": jobs, f"database, KiB{PER_JOB}": size / 1024 / jobs} | rows


def _size(conn: sa.Connection) -> float:
    if conn.dialect.name == "sqlite":
        pages = conn.exec_driver_sql("PRAGMA page_count").scalar_one()
        return float(pages * conn.exec_driver_sql("PRAGMA page_size").scalar_one())
    return float(conn.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one())
