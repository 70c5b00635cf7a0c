"""The same from a program elsewhere: the Python client over HTTP, following the job's events."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from _setup import installation, worker

from jobs.api.tokens import DEFAULT_SCOPES, create_token
from sostenuto import Sostenuto

SCRIPT = """
movements:
  work:
    - calls: [{Read: {path: input/names.txt}}]
    - transition: {next_step: ASK, summary: "Which order?"}
    - calls:
        - Write:
            path: output/sorted.txt
            content: "{{ results[0] | lines | sort | join('\\n') }}\\n"
    - transition: {next_step: COMPLETE, summary: Sorted.}
"""


@contextmanager
def web() -> Iterator[str]:
    """`sostenuto web` on a free port; gives its URL."""
    command = [sys.executable, "-P", "-c", "from jobs.cli import main; main()", "web", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    try:
        yield (
            next(line for line in process.stdout if "listening on " in line).split("listening on ")[1].strip()
        )
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def main() -> None:
    with installation(SCRIPT) as opened, worker(), web() as url:
        # You would rather: `sostenuto tokens create`, and SOSTENUTO_URL and SOSTENUTO_TOKEN in the environment.
        token, _ = create_token(opened.db, "local", DEFAULT_SCOPES, None)
        with Sostenuto(url, token) as client:
            job = client.submit("Sort the names.", files={"names.txt": b"Curie\nNoether\nLovelace\n"})
            for event in client.events(job):
                if event.change and event.change.to_state == "waiting_human":
                    question = client.job(job).pending_question
                    print(f"the agent asks: {question.question if question else None}")
                    client.reply(job, "alphabetical")
                elif event.message and event.message.tool_calls:
                    print(f"it calls {event.message.tool_calls[0]['name']}")
            print(f"{client.job(job).state}: {client.read(job, 'output/sorted.txt').decode().split()}")


if __name__ == "__main__":
    main()
