"""`python -m tests.acceptance.submitter NUMBER`: submits that many jobs over the installation of its environment."""

from __future__ import annotations

import sys

from jobs.installation import open_installation
from jobs.settings_sources import load_settings
from jobs.submit import SubmitRequest, submit

if __name__ == "__main__":
    with open_installation(load_settings()) as installation:
        for number in range(int(sys.argv[1])):
            submit(installation, SubmitRequest(f"Job {number}."), "local")
