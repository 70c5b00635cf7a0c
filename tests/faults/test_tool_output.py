"""What tools bring: by the real tools, commands in the sandbox, from the agent's call to the next request."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.agent.stage import COMPLETE, Line, Stage, call, calls
from tests.context.driving import drive, is_summary, small_window
from tests.strict_endpoint import Call, ChatRequest, Raw, Reply
from worker.tokens import estimate_tokens


def shown(stage: Stage) -> list[str]:
    """The results as the last request has them: what a model reads, not what is stored."""
    return [m["content"] for m in stage.endpoint.requests[-1].messages if m["role"] == "tool"]


def bash(command: str) -> Line:
    return calls(call("Bash", command=command))


def bash_results(stage: Stage, *commands: str, **submitted: Any) -> list[str]:
    """What each command's result says, each in a step of its own."""
    job_id = stage.play(*(bash(command) for command in commands), COMPLETE, **submitted)
    assert stage.job(job_id).state == "succeeded", stage.job(job_id).error
    return shown(stage)


def test_one_output_larger_than_the_window(stage: Stage) -> None:
    """1.7 MB of one command: capped when it is taken in, whole in a file that the result names, and reading on works."""
    small_window(stage)
    stage.piece("bash", {"name": "work", "allowed_tools": ["Bash", "Read"], "default_next": "COMPLETE"})

    def read_on(_: ChatRequest) -> Reply:
        path = re.search(r"All of it is in (logs/results/\S+): Read or Grep that", shown(stage)[0])
        assert path is not None
        return calls(call("Bash", command=f"tail -n 1 {path[1]}; wc -c < {path[1]}"))

    job_id = stage.play(bash("seq -f 'line %08.0f' 121430"), read_on, COMPLETE, piece="bash")
    assert stage.job(job_id).state == "succeeded", stage.job(job_id).error
    cut, rest = shown(stage)
    assert cut.startswith("line 00000001\nline 00000002\n")
    assert "line 00121430" in cut
    assert estimate_tokens(cut) < 4_000
    assert rest == "line 00121430\n1700020"
    assert stage.endpoint.overflows == []


def test_five_commands_at_once_share_a_budget(stage: Stage) -> None:
    """Each result would fit, thirty percent of the window, the batch would not: contents shrink, ids stay."""
    small_window(stage)
    stage.piece("bash", {"name": "work", "allowed_tools": ["Bash"], "default_next": "COMPLETE"})
    five = calls(*(call("Bash", command=f"yes word{n} | head -n 2400") for n in range(5)))
    job_id = stage.play(five, COMPLETE, piece="bash")
    assert stage.job(job_id).state == "succeeded", stage.job(job_id).error
    told = shown(stage)
    assert [text[:5] for text in told] == [f"word{n}" for n in range(5)]
    assert all("bytes are left out here" in text for text in told)
    assert stage.endpoint.overflows == []


def test_a_cut_inside_a_character(stage: Stage) -> None:
    """Output that ends in the middle of one, and a budget that does: whole characters, no lone surrogate."""
    small_window(stage)
    stage.piece("bash", {"name": "work", "allowed_tools": ["Bash", "Read"], "default_next": "COMPLETE"})
    job_id = stage.play(
        bash("printf '漢字👧' | head -c 8; for n in $(seq 4000); do printf '👩‍👩‍👧'; done"),
        calls(call("Read", path="input/a.txt")),
        COMPLETE,
        piece="bash",
        files={"a.txt": "👧字".encode() * 20_000},
    )
    assert stage.job(job_id).state == "succeeded", stage.job(job_id).error
    for text in shown(stage):
        text.encode()
        assert text.count("\ufffd") == text.startswith("漢字\ufffd👩")
        assert "byte" in text  # how much is left out, how to read on


def test_a_lone_surrogate_from_the_model(stage: Stage) -> None:
    r"""`"\ud83d"` in a text and in arguments, alone and as the two halves of a stream: stored and sent as what can be."""
    write = json.dumps({"path": "output/a.txt", "content": "half \ud83d, whole \ud83d\ude00"})
    deltas = [
        {"content": "half \ud83d"},
        {"content": " and whole \ud83d"},
        {"content": "\ude00"},
        {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "Write", "arguments": write}}]},
        {"tool_calls": [{"index": 1, "id": "b", "function": {"name": "Bash", "arguments": '{"command": "'}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": "printf %s \ud83d"}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": '\ude00\ud83d | wc -c"}'}}]},
    ]
    events = [f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta}]})}\n\n" for delta in deltas]
    job_id = stage.play(Raw((*(event.encode() for event in events), b"data: [DONE]\n\n")), COMPLETE)
    assert stage.job(job_id).state == "succeeded", stage.job(job_id).error
    assert shown(stage)[1] == "7"  # a whole character and the one that stands for half of one
    assert (stage.workspace(job_id) / "output/a.txt").read_text() == "half \ufffd, whole 😀"
    said = next(m for m in stage.endpoint.requests[-1].messages if m["role"] == "assistant")
    assert said["content"] == "half \ufffd and whole 😀"


def test_nul_and_utf_16(stage: Stage) -> None:
    r"""A command's NUL, a UTF-16 file with its mark, `\u0000` in arguments: visible, transcoded, storable on both databases."""
    text = "名前,値\r\nあ,1\r\n"
    job_id = stage.play(
        bash(r"printf 'a\0b'"),
        calls(call("Read", path="input/le.csv"), call("Read", path="input/be.csv")),
        calls(
            Call("Bash", '{"command": "echo \\u0000"}'),
            Call("Write", '{"path": "output/n\\u0000", "content": ""}'),
        ),
        calls(
            Call("Write", '{"path": "output/nul.bin", "content": "a\\u0000b"}'),
            call("todo_write", todos=[NUL]),
        ),
        COMPLETE,
        files={
            "le.csv": b"\xff\xfe" + text.encode("utf-16-le"),
            "be.csv": b"\xfe\xff" + text.encode("utf-16-be"),
        },
    )
    assert stage.job(job_id).state == "succeeded", stage.job(job_id).error
    printed, little, big, echoed, named, *_ = shown(stage)
    assert printed == "a␀b"
    assert "UTF-16" in little
    for told in (little, big):
        assert "名前,値" in told
        assert "あ,1" in told
    assert "cannot contain NUL" in echoed
    assert named.startswith("Error: ")
    assert (stage.workspace(job_id) / "output/nul.bin").read_bytes() == b"a\0b"
    assert r"x\u0000y" in shown(stage)[-1]


NUL = {"id": "1", "content": "x\0y", "status": "pending"}


def test_binary_files_and_redraw_frames(stage: Stage) -> None:
    """An ELF file that is called notes.txt, an image called .csv, 5,000 frames of a progress bar with colours."""
    picture = io.BytesIO()
    Image.new("RGB", (30, 20), "red").save(picture, "PNG")
    frames = "for n in $(seq 5000); do printf '\\033[2K\\r\\033[32m%d/5000\\033[0m' $n; done; echo; echo ok"
    job_id = stage.play(
        calls(call("Read", path="input/notes.txt"), call("Read", path="input/data.csv")),
        bash(frames),
        COMPLETE,
        files={"notes.txt": Path("/bin/true").read_bytes(), "data.csv": picture.getvalue()},
    )
    assert stage.job(job_id).state == "succeeded", stage.job(job_id).error
    elf, image, progress = shown(stage)
    assert elf.startswith("Error: ")
    assert "ELF" in elf
    assert "ReadImage" in image
    assert progress == "5000/5000\nok"


def test_one_very_long_line(stage: Stage) -> None:
    """200 kB of JSON in one line: cut by bytes; each hint moves forward, and following them gives all of it, once."""
    whole = json.dumps({"values": [f"値{n}" for n in range(18_000)]}, ensure_ascii=False)
    assert len(whole.encode()) > 200_000
    offsets: list[int] = []

    def read(request: ChatRequest) -> Reply:
        if is_summary(request):
            return Reply("The file is being read.")
        parts = stage.results(job_id)
        hint = re.search(r"byte_offset=(\d+)", parts[-1]) if parts else None
        if parts and not hint:
            return COMPLETE
        offsets.extend([int(hint[1])] if hint else [])
        return calls(call("Read", path="input/a.json", **({"byte_offset": offsets[-1]} if offsets else {})))

    stage.endpoint.mind = read
    job_id = stage.submit(files={"a.json": whole.encode()})
    assert drive(stage, job_id) == "succeeded", stage.job(job_id).error
    assert offsets == sorted(set(offsets))
    assert "".join(_body(part) for part in stage.results(job_id)[:-1]) == whole


def _body(part: str) -> str:
    """What of the file an answer of Read shows: without its header and its hint."""
    return re.sub(r"\n\[[^\n]*byte_offset[^\n]*\]$", "", part)


@pytest.mark.parametrize("ends", ["\r\n", "\n", "mixed"])
def test_line_ends(stage: Stage, ends: str) -> None:
    """CRLF and mixtures: an edit matches whatever the model's own line ends are, and each line keeps its own."""
    lines = ["first", "second", "third", "fourth"]
    glue = ["\r\n", "\n", "\r\n", "\n"] if ends == "mixed" else [ends] * 4
    before = "".join(line + end for line, end in zip(lines, glue, strict=True)).encode()
    stage.tell(
        calls(call("Edit", path="input/a.txt", old_string="second\nthird", new_string="zweite\ndritte")),
        COMPLETE,
    )
    job_id = stage.submit(files={"a.txt": before})
    stage.run()
    assert stage.job(job_id).state == "succeeded", stage.job(job_id).error
    after = (stage.workspace(job_id) / "input/a.txt").read_bytes()
    assert after == before.replace(b"second", b"zweite").replace(b"third", b"dritte")
