"""Logs hold what models, files and endpoints say: it must not steer a terminal nor look like another record."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from jobs.json_logs import logging_about
from jobs.plain_logs import plain_logs
from storage.masking import mask_logs, register_secrets
from tests.resilience.bench import COMPLETE, Bench, bash, story
from tests.resilience.conftest import sqlite_bench
from tests.strict_endpoint import Call, Reply

__all__ = ["sqlite_bench"]

SECRET = "sk-canary-of-the-logs"
HOSTILE = "\x1b]52;c;aGk=\x07\x9b31m\u202eevil\x1b[2J\r\n2026-01-01 00:00:00,000 INFO    worker: forged"


@pytest.fixture
def written() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    """A logger of the test's own, and what it writes."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger = logging.getLogger("tests.plain_logs")
    logger.propagate = False
    logger.addHandler(handler)
    plain_logs()
    mask_logs()
    plain_logs()
    yield logger, stream
    logger.removeHandler(handler)


def test_a_record_is_one_record_and_steers_nothing(written: tuple[logging.Logger, io.StringIO]) -> None:
    register_secrets([SECRET])
    logger, stream = written
    try:
        raise ValueError(f"{HOSTILE} {SECRET}")
    except ValueError:
        logger.exception("a tool said %s", HOSTILE)
    text = stream.getvalue()
    assert not set(text) & set("\x00\x07\x1b\x9b\r\u202e")
    assert "canary" not in text
    assert [line for line in text.splitlines() if not line.startswith("    ")] == [
        "ERROR a tool said ␛]52;c;aGk=␇\\x9b31m\\u202eevil␛[2J"
    ]
    assert "Traceback" in text


def test_json_is_one_object_a_line_whatever_it_says(written: tuple[logging.Logger, io.StringIO]) -> None:
    register_secrets([SECRET])
    logger, stream = written
    plain_logs(as_json=True)
    plain_logs()  # what was chosen stays, for handlers that come later
    with logging_about(job="j1", run="r1"):
        try:
            raise ValueError(f"{HOSTILE} {SECRET}")
        except ValueError:
            logger.exception("a tool said %s %s", HOSTILE, SECRET)
    logger.warning("of no job")
    text = stream.getvalue()
    assert text.isascii()
    assert "canary" not in text
    first, second = map(json.loads, text.splitlines())
    assert (first["job"], first["run"], first["level"]) == ("j1", "r1", "error")
    assert first["message"] == f"a tool said {HOSTILE} ***"
    assert "ValueError" in first["exception"]
    assert second["message"] == "of no job"
    assert "job" not in second


def test_a_workers_json_log_tells_job_and_run(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    worker = bench.start("--log-level", "debug", SOSTENUTO_LOG_FORMAT="json")
    job_id = bench.submit("Do it.")
    assert bench.wait_ended(job_id).state == "succeeded"
    worker.term()
    worker.wait()
    records = [json.loads(line) for line in worker.log_path.read_text().splitlines() if line.startswith("{")]
    assert len(records) == len(worker.log_path.read_text().splitlines())
    (begin,) = [record for record in records if "begins at step" in record["message"]]
    assert (begin["job"], begin["logger"]) == (job_id, "worker.slices")
    assert begin["run"] in begin["message"]


def test_a_workers_log_stays_plain_whatever_its_model_says(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.endpoint.mind = story(
        Reply(text=HOSTILE, calls=(Call(f"no such tool {HOSTILE}"), Call("Read", {"path": HOSTILE}))),
        bash(f"printf '%s' '{HOSTILE}' | tee output/x; exit 3"),
        COMPLETE,
    )
    worker = bench.start("--log-level", "debug")
    job_id = bench.submit(HOSTILE)
    assert bench.wait_ended(job_id).state == "succeeded"
    log = worker.log_path.read_bytes().decode("utf-8", "replace")
    assert job_id in log
    assert not set(log) & set("\x00\x07\x1b\x9b\u202e")
    assert "\n2026-01-01" not in log
