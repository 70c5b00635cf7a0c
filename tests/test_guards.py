"""The guards over all tests must themselves hold."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.guards import OutsideConnection, is_local

ROOT = Path(__file__).parents[1]


def _run_inner(folder: Path, source: str, **env: str) -> str:
    """Run a test module under the guards in a pytest of its own; returns what it printed."""
    (folder / "test_inner.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.guards", "-p", "no:cacheprovider",
               "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder), str(folder)]  # fmt: skip
    base = {name: value for name, value in os.environ.items() if name != "CI"}
    answer = subprocess.run(command, cwd=ROOT, env=base | env, capture_output=True, text=True, check=False)
    return answer.stdout + answer.stderr


@pytest.mark.parametrize(
    ("family", "address", "local"),
    [
        (socket.AF_INET, ("127.0.0.1", 80), True),
        (socket.AF_INET, ("127.9.9.9", 80), True),
        (socket.AF_INET, ("localhost", 80), True),
        (socket.AF_INET6, ("::1", 80, 0, 0), True),
        (socket.AF_UNIX, "/run/any.sock", True),
        (socket.AF_INET, ("192.0.2.1", 80), False),
        (socket.AF_INET, ("10.0.0.1", 80), False),
        (socket.AF_INET, ("example.com", 80), False),
        (socket.AF_INET6, ("2001:db8::1", 80, 0, 0), False),
    ],
)
def test_what_is_local(family: int, address: object, local: bool) -> None:
    assert is_local(family, address) is local


@pytest.mark.outside_network
def test_an_outside_connection_is_refused_before_anything_is_sent() -> None:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as sock:
            with pytest.raises(OutsideConnection):
                sock.connect(("192.0.2.1", 9))
            with pytest.raises(OutsideConnection):
                sock.connect_ex(("192.0.2.1", 9))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, pytest.raises(OutsideConnection):
        sock.sendto(b"x", ("192.0.2.1", 9))


def test_a_swallowed_outside_connection_still_fails_the_test(tmp_path: Path) -> None:
    source = """
import socket
def test_swallows():
    try:
        socket.create_connection(("192.0.2.1", 9), timeout=1)
    except OSError:
        pass
"""
    output = _run_inner(tmp_path, source)
    assert "the test tried to reach ('192.0.2.1', 9)" in output
    assert "1 passed, 1 error" in output


SKIPS = """
import pytest
def test_skips():
    pytest.skip("not here")
@pytest.mark.xfail(reason="known")
def test_known():
    assert False
"""


def test_a_skip_fails_in_ci_and_only_there(tmp_path: Path) -> None:
    assert "1 skipped, 1 xfailed" in _run_inner(tmp_path, SKIPS)
    output = _run_inner(tmp_path, SKIPS, CI="true")
    assert "1 failed, 1 xfailed" in output
    assert "not here" in output


def test_a_module_that_skips_itself_fails_in_ci(tmp_path: Path) -> None:
    source = "import pytest\npytest.importorskip('no_such_module')\n"
    assert "1 skipped" in _run_inner(tmp_path, source)
    assert "1 error" in _run_inner(tmp_path, source, CI="true")


def test_a_developers_keys_and_settings_are_invisible(tmp_path: Path) -> None:
    source = """
import os
def test_clean():
    assert not [name for name in os.environ if name.startswith(("OPENAI_", "SOSTENUTO_")) or "PROXY" in name]
"""
    output = _run_inner(
        tmp_path, source, OPENAI_API_KEY="sk-1", SOSTENUTO_MODEL="m", HTTPS_PROXY="http://p:1"
    )
    assert "1 passed" in output


RABBITMQ = """
import pytest
from tests import guards
guards.RABBITMQ_ADDRESS = ("127.0.0.1", 1)
@pytest.mark.rabbitmq
def test_needs_it():
    pass
@pytest.mark.parametrize("number", [1, 2])
def test_needs_nothing(number):
    pass
"""


def test_rabbitmq_tests_are_deselected_by_name_where_none_answers(tmp_path: Path) -> None:
    assert "2 passed, 1 deselected" in _run_inner(tmp_path, RABBITMQ, CI="true")


def test_rabbitmq_tests_that_were_asked_for_run_and_may_fail(tmp_path: Path) -> None:
    assert "1 passed, 2 deselected" in _run_inner(tmp_path, RABBITMQ, PYTEST_ADDOPTS="-m rabbitmq")
