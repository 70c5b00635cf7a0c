"""Submit a job with a file, wait for its end, read its result and what it wrote."""

from __future__ import annotations

from _setup import installation, wait_for_state, worker

from jobs.submit import SubmitRequest, submit
from jobs.views import get_job
from jobs.workspace import InputFile, workspace_path

SCRIPT = """
movements:
  work:
    - calls:
        - Read: {path: input/names.txt}
    - calls:
        - Write:
            path: output/sorted.txt
            content: "{{ last_result | lines | sort | join('\\n') }}\\n"
    - transition:
        next_step: COMPLETE
        summary: "I sorted {{ results[0] | lines | length }} names into output/sorted.txt."
"""


def main() -> None:
    with installation(SCRIPT) as opened:
        request = SubmitRequest(
            "Sort the names in input/names.txt into output/sorted.txt.",
            files=[InputFile("names.txt", b"Curie\nNoether\nLovelace\n")],
            idempotency_key="sort-names-1",  # submitted again with the same key, it is the same job
        )
        receipt = submit(opened, request, owner="local")
        print(f"submitted: {receipt.job.state}, {receipt.job.reason_text}")
        # From here on the job is safe: it and its files are committed, although no worker runs yet.

        again = submit(opened, request, owner="local")
        print(f"submitted again: the same job is {again.job.id == receipt.job.id}, a new one {again.created}")

        with worker():
            wait_for_state(opened, receipt.job.id, "succeeded", "failed", "aborted")

        job = get_job(opened, receipt.job.id, owner="local")
        print(f"{job.state} after {job.steps} steps: {job.result}")
        output = workspace_path(opened.settings.data_dir, job.id) / "output" / "sorted.txt"
        print(output.read_text(), end="")


if __name__ == "__main__":
    main()
