"""Jobs of activities that do nothing on Temporal: `python -m benchmarks.peers.temporal_jobs ADDRESS`."""

from __future__ import annotations

import asyncio
import sys
import uuid
from datetime import timedelta
from importlib.metadata import version

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

from benchmarks.peers.serving import serve_from_loop

QUEUE = "bench"


@activity.defn  # type: ignore[untyped-decorator]  # not installed where types are checked
async def step(number: int) -> str:
    return f"done {number}"


@workflow.defn
class Job:
    """Its activities one after another."""

    @workflow.run  # type: ignore[untyped-decorator]  # as above
    async def run(self, steps: int) -> str:
        for number in range(steps):
            await workflow.execute_activity(step, number, start_to_close_timeout=timedelta(seconds=60))
        return "done"


async def main(address: str) -> None:
    client = await Client.connect(address)

    async def job(steps: int) -> None:
        done = await client.execute_workflow(Job.run, steps, id=uuid.uuid4().hex, task_queue=QUEUE)
        assert done == "done"

    async def jobs_at_once(jobs: int, steps: int) -> None:
        await asyncio.gather(*(job(steps) for _ in range(jobs)))

    async with Worker(client, task_queue=QUEUE, workflows=[Job], activities=[step]):
        settings = f"temporalio {version('temporalio')}, activities, its defaults"
        await serve_from_loop(settings, jobs_at_once, 2)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
