"""Every example runs by itself and prints what its text says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.session import ServerSession
from tests.servers.watchdog import MARK

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = sorted(EXAMPLES.glob("[0-9]*.py"))

EXPECTED = {
    "01_submit.py": """\
submitted: queued, waiting for a worker
submitted again: the same job is True, a new one False
succeeded after 3 steps: I sorted 3 names into output/sorted.txt.
Curie
Lovelace
Noether
""",
    "02_ask_and_reply.py": """\
waiting_human: Which colour should the door have?
answered, and the job is queued
succeeded: Green it is. I read: Two tins, please.
  1. agent (question): Which colour should the door have?
  2. Emmy (comment): green
  3. Emmy (comment): Two tins, please.
  4. agent (result): Green it is. I read: Two tins, please.
""",
    "03_kill_the_worker.py": """\
killed after 2 steps
succeeded after 4 steps: Three files are written.
what was committed is unchanged: True
  submit: new → queued
  claim: queued → running
  lease_expired: running → queued
  claim: queued → running
  succeed: running → succeeded
""",
    "04_http_client.py": """\
it calls Read
it calls transition
the agent asks: Which order?
it calls Write
it calls transition
succeeded: ['Curie', 'Lovelace', 'Noether']
""",
}


def test_every_example_is_expected_and_described() -> None:
    assert [program.name for program in PROGRAMS] == sorted(EXPECTED)
    readme = (EXAMPLES / "README.md").read_text()
    assert [program.name for program in PROGRAMS if program.name not in readme] == []


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_the_example_prints_what_it_says_and_leaves_nothing(
    name: str, tmp_path: Path, server_session: ServerSession
) -> None:
    mark = f"{server_session.mark}/{tmp_path.name}"
    environment = {**os.environ, "TMPDIR": str(tmp_path), MARK: mark}
    command = [sys.executable, str(EXAMPLES / name)]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=150
    )
    try:
        assert (ran.returncode, ran.stdout) == (0, EXPECTED[name]), ran.stderr
        assert list(tmp_path.glob("sostenuto-example-*")) == []
    finally:
        left = server_session.reap(tmp_path.name)
    assert left == 0
