"""What a worker keeps of a transcript between two slices: nothing, however long it is."""

from __future__ import annotations

import gc
from pathlib import Path

from benchmarks.steps import step_job
from storage.records import Message


def test_a_slice_leaves_no_message_of_its_job_in_memory(tmp_path: Path, migrated_url: str) -> None:
    """Twenty steps read and write some forty messages; the process, which lives on, holds none of them afterwards."""
    others = (
        _messages()
    )  # of other tests, in tracebacks for example; held here, so that their ids stay theirs
    with step_job(tmp_path / "data", migrated_url, 2, 20) as job:
        assert len(job.slice()) == 19
        gc.collect()
        known = {id(other) for other in others}
        assert not [kept for kept in _messages() if id(kept) not in known]
        assert len(job.slice()) == 19  # and the next slice has what it needs


def _messages() -> list[Message]:
    return [kept for kept in gc.get_objects() if isinstance(kept, Message)]
