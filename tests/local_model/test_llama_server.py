"""The client and whole jobs against a real server with a small real model. Only by `make real-model-test`.

The model has 135 million parameters and no idea of tools: what it writes is not asked for, only that all of it is
taken for what it is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.settings import Settings
from storage.engine import Database
from tests.agent.stage import Stage
from tests.local_model.server import SLOTS, WINDOW, LlamaServer
from tests.model.calling import TOOL
from tests.servers.session import ServerSession
from worker.cancel import Cancelled, CancelToken
from worker.model.calls import ModelCalls
from worker.model.errors import ModelError, ModelErrorKind
from worker.model.types import ModelReply, ModelRequest

pytestmark = [pytest.mark.local_model, pytest.mark.timeout(1200)]
SYSTEM = {"role": "system", "content": "You are brief."}


@pytest.fixture(scope="module")
def llama(server_session: ServerSession) -> Iterator[LlamaServer]:
    server = LlamaServer(server_session)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def calls(llama: LlamaServer, migrated_url: str, tmp_path: Path) -> Iterator[ModelCalls]:
    db = Database(migrated_url)
    settings = Settings(data_dir=tmp_path, database_url=migrated_url, model="smol", openai_base_url=llama.url)
    yield ModelCalls(settings, db)
    db.close()


def request(text: str, most: int = 24, tools: list[dict[str, Any]] | None = None) -> ModelRequest:
    return ModelRequest("smol", [SYSTEM, {"role": "user", "content": text}], tools or [], most, "job/1/1")


def ask(calls: ModelCalls, text: str, most: int = 24, **more: Any) -> ModelReply:
    return calls.complete(request(text, most, **more), CancelToken())


def test_a_streamed_reply_with_its_usage(calls: ModelCalls) -> None:
    reply = ask(calls, "Say hello.")
    assert reply.content
    assert (reply.usage.prompt_tokens or 0) > 5
    assert 0 < (reply.usage.completion_tokens or 0) <= 24
    assert reply.adapted == ()


def test_a_reply_cut_at_its_limit_says_so(calls: ModelCalls) -> None:
    assert ask(calls, "Count from one to one hundred in words.", 4).finish_reason == "length"


def test_tools_are_taken_though_the_model_knows_none(calls: ModelCalls) -> None:
    reply = ask(calls, "Read a.txt with the tool Read.", tools=[TOOL])
    assert reply.content or reply.tool_calls


def test_the_window_of_a_slot_is_learned_by_asking(calls: ModelCalls) -> None:
    calls.learn_window("smol", CancelToken())
    assert calls.profile("smol").window == WINDOW


def test_an_overflow_is_one_and_names_the_window(calls: ModelCalls) -> None:
    with pytest.raises(ModelError) as caught:
        ask(calls, "word " * 3 * WINDOW)
    assert caught.value.kind is ModelErrorKind.OVERFLOW
    assert caught.value.numbers.window == WINDOW
    assert (caught.value.numbers.prompt or 0) > WINDOW
    assert (calls.profile("smol").window, calls.profile("smol").window_source) == (WINDOW, "learned")


def test_more_calls_than_slots_are_all_answered(calls: ModelCalls) -> None:
    replies: list[ModelReply] = []
    threads = [
        threading.Thread(target=lambda n=n: replies.append(ask(calls, f"Name {n} animals.", 16)))
        for n in range(2, 2 + 3 * SLOTS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert len(replies) == 3 * SLOTS


def test_a_cancel_ends_a_long_reply_and_frees_its_slot(calls: ModelCalls) -> None:
    token, ended = CancelToken(), threading.Event()

    def talk() -> None:
        try:
            calls.complete(request("Write a very long story about the sea.", 4000), token)
        except Cancelled:
            ended.set()

    thread = threading.Thread(target=talk)
    thread.start()
    assert ask(calls, "Say hello.").content  # meanwhile: the other slot
    token.cancel("cancel")
    assert ended.wait(2)
    thread.join(10)
    assert ask(calls, "Say hello again.").content


def test_a_server_that_dies_in_mid_stream_and_comes_back(calls: ModelCalls, llama: LlamaServer) -> None:
    """Nothing of the half reply is kept; while it is gone calls fail as passing; afterwards all is well."""
    failures: list[ModelError] = []
    streaming = threading.Event()

    class Ear:
        def sent(self, body: bytes) -> None: ...

        def answered(self, status: int, headers: Any) -> None: ...

        def received(self, chunk: bytes) -> None:
            streaming.set()

    def talk() -> None:
        from dataclasses import replace

        from worker.model.openai_client import OpenAIModel

        opened = calls._open("smol")
        assert isinstance(opened, OpenAIModel)
        try:
            opened.complete(replace(request("Write a long story.", 4000), tape=Ear()), CancelToken())
        except ModelError as error:
            failures.append(error)

    thread = threading.Thread(target=talk)
    thread.start()
    assert streaming.wait(60)
    llama.kill()
    thread.join(30)
    assert [error.kind for error in failures] == [ModelErrorKind.INTERRUPTED]
    with pytest.raises(ModelError) as caught:
        ask(calls, "Say hello.")
    assert caught.value.kind is ModelErrorKind.TRANSIENT
    llama.start()
    assert ask(calls, "Say hello.").content


def test_a_job_comes_to_an_honest_end(llama: LlamaServer, migrated_url: str, tmp_path: Path) -> None:
    """A model without tools never ends its movement: that is said, and what it cost was counted by the server."""
    stage = Stage(migrated_url, tmp_path, llama, None)  # type: ignore[arg-type]  # only its URL is asked for
    stage.reopen(max_output_tokens=64)
    job_id = stage.submit("Write hello into output/a.txt.")
    deadline = time.monotonic() + 600
    while stage.job(job_id).state in ("queued", "running") and time.monotonic() < deadline:
        stage.run()
        if stage.job(job_id).state == "queued":
            stage.make_due(job_id)
    job = stage.job(job_id)
    assert job.state == "failed", job
    assert job.reason in ("no_transition", "loop", "context_exhausted"), job
    assert job.reason_text
    assert job.next_action
    assert job.tokens > 0
    said = [message.extra or {} for message in stage.messages(job_id) if message.role == "assistant"]
    assert said
    assert all("estimated" not in extra for extra in said)
    stage.close()
