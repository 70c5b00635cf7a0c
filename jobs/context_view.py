"""What the model of a job would see now. Workers make requests, so a program of theirs makes this view, too.

It is started as a process, as workers are, and takes about a second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from typing import Any

from jobs.errors import SostenutoError
from jobs.installation import Installation

MOST_AT_ONCE = 2
_slots = threading.BoundedSemaphore(MOST_AT_ONCE)


def read_context(installation: Installation, job_id: str) -> dict[str, Any]:
    """The messages and tools of the job's next request, with estimated tokens. The caller has checked the owner.

    Others that ask at the same time wait. Raises SostenutoError.
    """
    settings = installation.settings
    here = {
        "SOSTENUTO_DATA_DIR": str(settings.data_dir),
        "SOSTENUTO_DATABASE_URL": settings.database_url,
    }
    command = [sys.executable, "-P", "-m", "worker.context_view", job_id]
    with _slots:
        done = subprocess.run(command, capture_output=True, check=False, env=os.environ | here)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise SostenutoError(f"the context of job {job_id} cannot be shown: {last}")
    view: dict[str, Any] = json.loads(done.stdout)
    return view
