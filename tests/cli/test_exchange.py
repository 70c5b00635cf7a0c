"""`sostenuto exchange`: a list, one step, and what it says where nothing is kept."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

from jobs.exchanges import exchanges_folder, file_name
from tests.cli.conftest import Cli


def test_a_list_and_one_step(cli: Cli, folder: Path) -> None:
    job = json.loads(cli("submit", "Do it.", "--json").out)["job"]["id"]
    assert cli("exchange", job).out == ""
    missing = cli("exchange", job, "1")
    assert missing.code != 0
    assert "is kept" in missing.err
    kept = exchanges_folder(folder / "sostenuto-data", job)
    kept.mkdir(parents=True)
    data = {
        "seq": 1, "at": 1000.0, "step": 1, "model": "m", "endpoint": "e", "outcome": "reply", "error": None,
        "seconds": 0.5, "status": 200, "response": "data: hi\x1b]52;c;eA==\x07",
        "request": {"base": None, "kept": 0, "messages": [{"role": "user", "content": "Hello"}], "rest": {}},
    }  # fmt: skip
    (kept / file_name(1)).write_bytes(zlib.compress(json.dumps(data).encode()))
    assert cli("exchange", job).out.split("\t")[0] == "1"
    shown = cli("exchange", job, "1").out
    assert "Hello" in shown
    assert "data: hi" in shown
    assert "\x1b" not in shown
    assert json.loads(cli("exchange", job, "--seq", "1", "--json").out)["request"]["messages"]
