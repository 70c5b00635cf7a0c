"""`python -m benchmarks.recovery`: how soon a job goes on elsewhere, and whether streaming jobs keep their leases.

Prints figures; asserts none. Worker processes are real, the broker and the database are the embedded ones, and the model
is a small streaming server in this process. The machine's own load is part of what is measured.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from jobs.installation import Installation, open_installation
from jobs.settings import Settings
from jobs.submit import SubmitRequest, submit
from jobs.views import get_job
from storage.runs import list_runs

LEASE_SECONDS = 15.0
ROUNDS = 3
STREAMING_JOBS, PROCESSES = 200, 2
CHUNKS, CHUNK_SECONDS = 20, 0.05
ARGUMENTS = json.dumps({"next_step": "COMPLETE", "summary": "done"})


class SlowModel(ThreadingHTTPServer):
    """Answers every call with COMPLETE, in chunks; until `go` is set, with nothing at all."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.go = threading.Event()
        self.chunk_seconds = 0.0
        self.calls = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is no news here: workers are killed."""


class _Answer(BaseHTTPRequestHandler):
    server: SlowModel

    def do_POST(self) -> None:
        self.server.calls += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.go.wait()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for _ in range(CHUNKS):
            self._chunk({"content": "word "}, None)
            time.sleep(self.server.chunk_seconds)
        call = {
            "index": 0,
            "id": "call",
            "type": "function",
            "function": {"name": "transition", "arguments": ARGUMENTS},
        }
        self._chunk({"tool_calls": [call]}, None)
        self._chunk({}, "tool_calls")
        self.wfile.write(b"data: [DONE]\n\n")

    def _chunk(self, delta: dict[str, Any], finish: str | None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        event = {
            "id": "reply",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": "slow",
            "choices": [choice],
        }
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

    def log_message(self, *_: Any) -> None:
        """Quiet."""


class Bench:
    """An installation, its model, and worker processes."""

    def __init__(self, folder: Path, installation: Installation, model: SlowModel) -> None:
        self.installation = installation
        self.model = model
        self._folder = folder
        self._env = os.environ | {
            "SOSTENUTO_DATA_DIR": str(installation.settings.data_dir),
            "SOSTENUTO_LEASE_SECONDS": str(LEASE_SECONDS),
            "SOSTENUTO_GRACE_SECONDS": "0.2",
            "SOSTENUTO_MODEL": "slow",
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": model.url,
        }
        self._started: list[subprocess.Popen[bytes]] = []

    def worker(self, concurrency: int) -> subprocess.Popen[bytes]:
        """Returns when it takes jobs."""
        log = self._folder / f"worker-{len(self._started)}.log"
        command = [
            str(Path(sys.executable).with_name("sostenuto")),
            "worker",
            "--concurrency",
            str(concurrency),
        ]
        with log.open("wb") as output:
            process = subprocess.Popen(command, env=self._env, stdout=output, stderr=output)
        self._started.append(process)
        wait(lambda: "is ready: queues" in log.read_text())
        return process

    def submit(self) -> str:
        return submit(self.installation, SubmitRequest("Say that it is done."), "bench").job.id

    def ended(self, job_id: str) -> bool:
        return get_job(self.installation, job_id, None).completed_at is not None

    def runs(self, job_id: str) -> list[dict[str, Any]]:
        return list_runs(self.installation.db, job_id)

    def stop(self) -> None:
        for process in self._started:
            process.kill()
            process.wait(30)
        self._started.clear()

    def recovery_seconds(self, number: signal.Signals) -> float:
        """From the signal to a worker in the middle of a model call, to the next run's claim elsewhere."""
        calls = self.model.calls
        self.model.go.clear()
        doomed = self.worker(1)
        job_id = self.submit()
        wait(lambda: self.model.calls > calls)
        self.worker(1)
        began = time.time()
        doomed.send_signal(number)
        wait(lambda: len(self.runs(job_id)) == 2)
        self.model.go.set()
        wait(lambda: self.ended(job_id))
        seconds = float(self.runs(job_id)[1]["claimed_at"]) - began
        self.stop()
        return seconds

    def streaming(self, jobs: int, processes: int) -> tuple[float, int]:
        """All jobs at once, each a reply that streams for a second: (from its first chunk to the last end, leases lost)."""
        calls = self.model.calls
        self.model.go.clear()
        self.model.chunk_seconds = CHUNK_SECONDS
        for _ in range(processes):
            self.worker(jobs // processes)
        job_ids = [self.submit() for _ in range(jobs)]
        wait(lambda: self.model.calls >= calls + jobs)
        began = time.time()
        self.model.go.set()
        wait(lambda: all(self.ended(job_id) for job_id in job_ids))
        runs = [run for job_id in job_ids for run in self.runs(job_id)]
        self.stop()
        return max(float(run["ended_at"]) for run in runs) - began, sum(
            run["outcome"] != "succeed" for run in runs
        )


def wait(condition: Callable[[], bool], timeout: float = 300) -> None:
    """Returns when the condition holds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.01)


def main() -> int:
    model = SlowModel()
    with tempfile.TemporaryDirectory(prefix="sostenuto-recovery-") as name:
        folder = Path(name)
        with open_installation(Settings(data_dir=folder / "data")) as installation:
            bench = Bench(folder, installation, model)
            try:
                for number, note in (
                    (signal.SIGKILL, f"the lease is {LEASE_SECONDS:g} s"),
                    (signal.SIGTERM, "woken"),
                ):
                    taken = [bench.recovery_seconds(number) for _ in range(ROUNDS)]
                    print(f"{number.name}: claimed elsewhere after {statistics.median(taken):.2f} s ({note}; {ROUNDS} rounds, "
                          f"{min(taken):.2f} to {max(taken):.2f})", flush=True)  # fmt: skip
                seconds, lost = bench.streaming(STREAMING_JOBS, PROCESSES)
                print(f"{STREAMING_JOBS} jobs that stream for {CHUNKS * CHUNK_SECONDS:g} s on {PROCESSES} processes: "
                      f"{seconds:.2f} s, leases lost: {lost}")  # fmt: skip
            finally:
                bench.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
