"""Two machines that share a database, a broker and the data folder: a job's files are where its next worker is."""

from __future__ import annotations

from jobs.states import State
from storage.runs import list_runs
from tests.resilience.bench import COMPLETE, Bench, bash, job_of
from tests.resilience.conftest import private_postgres_bench
from tests.strict_endpoint import Call, ChatRequest, Reply

__all__ = ["private_postgres_bench"]

FIRST, SECOND = "worker-1@machine-a", "worker-1@machine-b"
QUICK = {"SOSTENUTO_LEASE_SECONDS": "3", "SOSTENUTO_SWEEP_SECONDS": "0.2"}


def test_a_job_goes_on_with_its_files_on_another_machine(private_postgres_bench: Bench) -> None:
    """The first machine dies after a command; the second one begins in the folder where that command ended, and its
    tools read, change and search what the first one wrote."""
    bench = private_postgres_bench
    replies = [
        bash(
            "mkdir -p output/deep && cd output/deep && echo 'made on a' > f; while [ ! -e go ]; do sleep 0.1; done"
        ),
        bash("cat f; echo 'and on b' >> f; pwd"),
        Reply(
            calls=(
                Call("Edit", {"path": "output/deep/f", "old_string": "made", "new_string": "written"}),
                Call("Read", {"path": "output/deep/f"}),
                Call("Grep", {"pattern": "on [ab]"}),
            )
        ),
        COMPLETE,
    ]

    def mind(request: ChatRequest) -> Reply:
        return replies[request.replies]

    bench.endpoint.mind = mind
    first = bench.start("--concurrency", "2", "--name", FIRST, **QUICK)
    job_id = bench.submit()
    file = bench.wait_file(job_id, "deep/f")
    gate = bench.endpoint.hold()
    file.with_name("go").touch()
    gate.wait_held(1)
    bench.start("--concurrency", "2", "--name", SECOND, **QUICK)
    first.kill_only()
    gate.release()
    assert bench.wait_ended(job_id).state == State.SUCCEEDED
    told = [message.content or "" for message in bench.messages(job_id) if message.role == "tool"]
    assert told[1].startswith("made on a\n")
    assert told[1].rstrip().endswith("/output/deep")
    assert told[3] == "written on a\nand on b\n"
    assert "output/deep/f" in told[4]
    workers = [run["worker"] for run in list_runs(bench.installation.db, job_id)]
    assert (workers[0], workers[-1]) == (FIRST, SECOND)
    assert bench.deaths(job_id) == 1
    assert job_of(bench.endpoint.requests[0]) == job_id
