"""An agent asks a person. The job waits without holding a worker, for a minute or a week; the answer wakes it."""

from __future__ import annotations

from _setup import installation, wait_for_state, worker

from jobs.comments import add_comment, reply
from jobs.submit import SubmitRequest, submit
from jobs.views import get_job, list_comments

SCRIPT = """
movements:
  work:
    - transition:
        next_step: ASK
        summary: Which colour should the door have?
    - text: "Now I know: {{ last_result }}"
      calls:
        - Write: {path: output/order.txt, content: "{{ last_result }}"}
    - transition:
        next_step: COMPLETE
        summary: "{{ results[0] | search('answers: (.*)') | capitalize }} it is.{{ ' I read: ' ~ comments[0] | search(': (.*)$') if comments else '' }}"
"""


def main() -> None:
    with installation(SCRIPT) as opened:
        job_id = submit(opened, SubmitRequest("Order paint for the door."), owner="local").job.id

        with worker():
            wait_for_state(opened, job_id, "waiting_human")
        # No worker runs any more. The question is in the database, and so will be the answer.
        job = get_job(opened, job_id, owner="local")
        assert job.pending_question is not None
        print(f"{job.state}: {job.pending_question['question']}")

        reply(opened, job_id, "local", "green", author="Emmy")
        print(f"answered, and the job is {get_job(opened, job_id, owner='local').state}")
        add_comment(
            opened, job_id, "local", "Two tins, please.", author="Emmy"
        )  # read before it may complete

        with worker():
            wait_for_state(opened, job_id, "succeeded", "failed", "aborted")
        job = get_job(opened, job_id, owner="local")
        print(f"{job.state}: {job.result}")
        for remark in list_comments(opened, job_id):
            print(f"  {remark.number}. {remark.author} ({remark.kind}): {remark.text}")


if __name__ == "__main__":
    main()
