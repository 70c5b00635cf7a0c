"""A worker that dies while an image is decoded: the next one shows it, once, and no decoder lives on."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from jobs.states import State
from jobs.submit import SubmitRequest, submit
from jobs.workspace import InputFile
from storage.models import metadata
from tests.resilience.bench import COMPLETE, Bench, story
from tests.resilience.conftest import bench
from tests.strict_endpoint import Call, ChatRequest, Reply
from tests.tools.test_bounds import decoders, decodes, slow_image
from tests.waiting import wait_until

__all__ = ["bench"]


def _shown(request: ChatRequest) -> int:
    contents: list[Any] = [message["content"] for message in request.messages]
    return sum(
        part["type"] == "image_url" for content in contents if isinstance(content, list) for part in content
    )


def test_a_worker_killed_while_an_image_is_decoded(bench: Bench) -> None:
    quick = {"SOSTENUTO_LEASE_SECONDS": "3", "SOSTENUTO_SWEEP_SECONDS": "0.2"}
    bench.endpoint.mind = story(
        Reply(calls=(Call("ReadImage", {"path": "input/a.png"}), Call("Glob", {"pattern": "**"}))), COMPLETE
    )
    first = bench.start(**quick)
    bench.write_pieces()
    request = SubmitRequest("Look.", piece="plain", files=[InputFile("a.png", slow_image())])
    job_id = submit(bench.installation, request, "local").job.id
    children = wait_until(lambda: decoders(first.pid), 90, "the worker's child decodes")
    first.kill_only()
    wait_until(lambda: not any(map(decodes, children)), 60, "the decoder is dead")
    bench.start(**quick)
    assert bench.wait_ended(job_id).state == State.SUCCEEDED
    assert [_shown(request) for request in bench.endpoint.requests] == [0, 1]
    assert bench.deaths(job_id) == 1
    with bench.installation.db.read() as conn:
        stored = conn.execute(sa.select(sa.func.count()).select_from(metadata.tables["images"])).scalar_one()
    assert stored == 1
