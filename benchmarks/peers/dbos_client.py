"""Who gives agents to another process's DBOS, by a queue: `python -m benchmarks.peers.dbos_client URL`."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Any

from dbos import DBOSClient

from benchmarks.peers.serving import serve

QUEUE = "bench"


def main(url: str) -> None:
    client = DBOSClient(system_database_url=url, application_name="bench")
    queue = client.register_queue(QUEUE)
    options: Any = {"queue_name": QUEUE, "workflow_name": "agent"}

    def run(jobs: int, model: str) -> None:
        handles = [client.enqueue(options, model) for _ in range(jobs)]
        for handle in handles:
            assert handle.get_result(polling_interval_sec=0.1) == "done"

    interval = f"polled every {queue.polling_interval_sec:g} s, its default"
    serve(f"dbos {version('dbos')}, DBOSClient.enqueue, a queue {interval}", run, "2-0-1")
    client.destroy()


if __name__ == "__main__":
    main(sys.argv[1])
