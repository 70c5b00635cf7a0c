"""What was sent to models and came back: kept whole, masked, linear in size, gone in time; and never a job's trouble."""

from __future__ import annotations

import errno
import json
import os
import zlib
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from jobs.errors import NotFound
from jobs.exchanges import (
    clear_exchanges,
    exchange_files,
    exchanges_folder,
    find_step,
    forget_exchanges,
    list_exchanges,
    read_exchange,
)
from storage.errors import SostenutoError
from tests.agent.stage import COMPLETE, MODEL, Stage, call, calls
from tests.strict_endpoint import HttpFailure, Reply, StreamFailure
from worker.exchanges import WITHHELD

KEY = "sk-canary-0123456789abcdef"
ACT = calls(call("Again", n=1))


def kept(stage: Stage, job_id: str) -> list[dict[str, Any]]:
    stage.process.exchanges.close(30)
    return list_exchanges(stage.folder, job_id)


def whole(stage: Stage, job_id: str, seq: int) -> dict[str, Any]:
    stage.process.exchanges.close(30)
    return read_exchange(stage.folder, job_id, seq)


def test_each_step_s_request_and_response_can_be_read(stage: Stage) -> None:
    job_id = stage.play(ACT, ACT, COMPLETE)
    listed = kept(stage, job_id)
    assert [one["step"] for one in listed] == [1, 2, 3]
    assert {(one["outcome"], one["status"], one["model"]) for one in listed} == {("reply", 200, MODEL)}
    for one, request in zip(listed, stage.endpoint.requests, strict=True):
        read = whole(stage, job_id, one["seq"])
        assert read["request"]["messages"] == request.messages
        assert read["request"]["tools"] == request.tools
        assert not read["incomplete"]
        assert "data: [DONE]" in read["response"]
        assert one["usage"]["prompt_tokens"] > 0
    assert find_step(stage.folder, job_id, 2) == listed[1]["seq"]


def test_another_worker_goes_on_where_the_first_one_was(stage: Stage) -> None:
    """A job that moves to another process: numbers go on, requests are whole."""
    stage.restart(slice_steps=1)
    job_id = stage.play(ACT)
    stage.process.exchanges.close(30)
    stage.restart()
    stage.tell(ACT)
    stage.run()
    stage.process.exchanges.close(30)
    stage.restart()
    stage.tell(COMPLETE)
    stage.run()
    assert [one["seq"] for one in kept(stage, job_id)] == [1, 2, 3]
    for seq, request in enumerate(stage.endpoint.requests, 1):
        assert whole(stage, job_id, seq)["request"]["messages"] == request.messages


def test_the_folder_grows_with_the_conversation(stage: Stage) -> None:
    """Not with its square: 20 steps take no more than about twice what 10 take."""
    stage.restart(context_window=1_000_000)
    long = [Reply(text=os.urandom(4000).hex(), calls=(call("Again", n=n),)) for n in range(20)]
    job_id = stage.play(*long, COMPLETE)
    stage.process.exchanges.close(30)
    sizes = [file.path.stat().st_size for file in exchange_files(stage.folder, job_id)]
    assert len(sizes) == 21
    assert sum(sizes[10:20]) < 2 * sum(sizes[:10])


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (
            HttpFailure(401, {"error": {"code": "invalid_api_key", "message": f"bad key {KEY}"}}),
            "authentication",
        ),
        (StreamFailure(2), "interrupted"),
    ],
)
def test_failures_are_kept_too(stage: Stage, failure: Any, outcome: str) -> None:
    stage.restart(openai_api_key=SecretStr(KEY))
    stage.tell(COMPLETE)
    job_id = stage.submit()
    stage.endpoint.fail(failure)
    stage.run()
    [one] = kept(stage, job_id)
    assert one["outcome"] == outcome
    assert one["error"]
    assert KEY not in json.dumps(whole(stage, job_id, one["seq"]))


@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_a_secret_is_masked_also_where_the_stream_cuts_it(stage: Stage, pieces: int) -> None:
    """The key in the instruction, and said by the model in deltas that each hold a part of it."""
    stage.restart(openai_api_key=SecretStr(KEY))
    said = Reply(text=f"the key is {KEY}", calls=COMPLETE.calls, chunks=pieces)
    job_id = stage.play(said, instruction=f"Use {KEY}.")
    stage.process.exchanges.close(30)
    for file in exchange_files(stage.folder, job_id):
        text = zlib.decompress(file.path.read_bytes()).decode()
        assert KEY not in text
        assert (WITHHELD in text) == ("the key is" in text.partition('"response"')[2])
        assert KEY[-8:] not in text


def test_a_secret_in_the_pieces_of_a_broken_stream_is_withheld(stage: Stage) -> None:
    stage.restart(openai_api_key=SecretStr(KEY))
    stage.tell(Reply(text=KEY, chunks=3))
    job_id = stage.submit()
    stage.endpoint.fail(StreamFailure(4))
    stage.run()
    [one] = kept(stage, job_id)
    assert whole(stage, job_id, one["seq"])["response"] == WITHHELD


def test_zero_days_keep_nothing(stage: Stage) -> None:
    stage.restart(exchanges={"keep_days": 0})
    job_id = stage.play(COMPLETE)
    assert kept(stage, job_id) == []
    assert not (stage.folder / "exchanges").exists()


def test_a_full_disk_is_no_job_s_trouble(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("worker.exchanges._write_whole", full)
    job_id = stage.play(ACT, COMPLETE)
    assert stage.job(job_id).state == "succeeded"
    assert kept(stage, job_id) == []


def test_a_job_s_share_of_the_disk_is_bounded(stage: Stage) -> None:
    stage.restart(exchanges={"max_job_bytes": 3_000, "max_bytes": 500})
    job_id = stage.play(*[ACT] * 8, COMPLETE)
    assert stage.job(job_id).state == "succeeded"
    listed = kept(stage, job_id)
    assert 1 <= len(listed) < 9
    assert whole(stage, job_id, 1)["response_cut"]


def test_half_written_and_foreign_files_are_passed_over(stage: Stage) -> None:
    """A worker killed while it wrote, a disk that lost a file's end: the others can still be read."""
    job_id = stage.play(ACT, ACT, COMPLETE)
    stage.process.exchanges.close(30)
    files = [file.path for file in exchange_files(stage.folder, job_id)]
    files[0].write_bytes(files[0].read_bytes()[:-20])
    (files[0].parent / "notes.txt").write_text("mine")
    assert [one["seq"] for one in list_exchanges(stage.folder, job_id)] == [2, 3]
    read = read_exchange(stage.folder, job_id, 3)
    assert read["incomplete"]
    assert read["response"]
    with pytest.raises(NotFound):
        read_exchange(stage.folder, job_id, 1)


def _aged(folder: Path, job_id: str, seconds: float) -> None:
    for file in exchange_files(folder, job_id):
        when = file.path.stat().st_mtime - seconds
        os.utime(file.path, (when, when))


def test_what_is_old_or_too_much_is_cleared_away(stage: Stage) -> None:
    jobs = [stage.play(COMPLETE) for _ in range(3)]
    stage.process.exchanges.close(30)
    old, used, new = jobs
    _aged(stage.folder, old, 10_000)
    _aged(stage.folder, used, 100)
    assert clear_exchanges(stage.folder, 3_000, 10**9) == 1
    assert not exchanges_folder(stage.folder, old).exists()
    size = sum(file.path.stat().st_size for file in exchange_files(stage.folder, new))
    assert clear_exchanges(stage.folder, 3_000, size) == 1
    assert [bool(exchange_files(stage.folder, job)) for job in jobs] == [False, False, True]
    forget_exchanges(stage.folder, new)
    assert list_exchanges(stage.folder, new) == []


@pytest.mark.parametrize("name", ["../../etc", "a/b", "..", ""])
def test_a_name_that_is_no_job_s_reads_nothing(name: str, tmp_path: Path) -> None:
    with pytest.raises(SostenutoError):
        read_exchange(tmp_path, name, 1)
    with pytest.raises(SostenutoError):
        list_exchanges(tmp_path, name)
