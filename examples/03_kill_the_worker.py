"""Kill a worker with SIGKILL in the middle of a job: another goes on where the database says that it was."""

from __future__ import annotations

import signal

from _setup import installation, wait_for_state, wait_until, worker

from jobs.submit import SubmitRequest, submit
from jobs.views import get_job, list_events, list_messages

# The third reply takes its time: the worker is killed while it waits for it.
SCRIPT = """
movements:
  work:
    - calls:
        - Write: {path: output/one.txt, content: one}
    - calls:
        - Write: {path: output/two.txt, content: two}
    - delay: 2
      calls:
        - Write: {path: output/three.txt, content: three}
    - transition: {next_step: COMPLETE, summary: Three files are written.}
"""


def main() -> None:
    with installation(SCRIPT) as opened:
        job_id = submit(opened, SubmitRequest("Write three files."), owner="local").job.id

        with worker("first") as first:
            wait_until(lambda: get_job(opened, job_id, owner="local").steps == 2)
            first.send_signal(signal.SIGKILL)
            first.wait()
        before = list_messages(opened, job_id)
        print(f"killed after {get_job(opened, job_id, owner='local').steps} steps")
        # The job is still marked as running: nobody was there to say otherwise, and its lease goes on for 3 s.

        with worker("second"):
            wait_for_state(opened, job_id, "succeeded", "failed", "aborted")
        job = get_job(opened, job_id, owner="local")
        print(f"{job.state} after {job.steps} steps: {job.result}")
        print(f"what was committed is unchanged: {list_messages(opened, job_id)[: len(before)] == before}")
        for event in list_events(opened, job_id):
            if event.to_state:
                print(f"  {event.kind}: {event.from_state or 'new'} → {event.to_state}")


if __name__ == "__main__":
    main()
