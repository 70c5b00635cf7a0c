"""`sostenuto flower` as a process, and what it tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx2

from jobs.flower_server import USER
from tests.servers.workers import CommandProcess
from tests.waiting import wait_until

PASSWORD = "flowers-own-password-3f9"


@dataclass
class Flower:
    """One that listens at `url`, seen by who knows the password."""

    url: str
    process: CommandProcess | None = None
    password: str = PASSWORD

    def client(self, password: str | None = "") -> httpx2.Client:
        """Of who knows the password; with another one, or with None, of a stranger."""
        auth = None if password is None else (USER, password or self.password)
        return httpx2.Client(base_url=self.url, auth=auth, trust_env=False, timeout=30)

    def tasks(self, job_id: str) -> list[dict[str, Any]]:
        """The tasks that it shows with this job's id, newest first."""
        with self.client() as client:
            told: dict[str, dict[str, Any]] = client.get("/api/tasks").json()
        found = [task for task in told.values() if job_id in str(task["args"])]
        return sorted(found, key=lambda task: -float(task["received"] or 0))

    def wait_task(self, job_id: str, **wanted: str) -> dict[str, Any]:
        """Waits until a task of the job is shown whose fields contain these texts."""

        def look() -> dict[str, Any] | None:
            for task in self.tasks(job_id):
                if all(text in str(task[name]) for name, text in wanted.items()):
                    return task
            return None

        found = wait_until(look, 60, f"a task of {job_id} with {wanted}: {self.tasks(job_id)}")
        assert found is not None
        return found
