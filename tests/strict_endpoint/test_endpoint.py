"""The endpoint as its users meet it: over HTTP, streamed and not, with its controls."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from tests.strict_endpoint import Call, HttpFailure, Reply, StreamFailure, StrictEndpoint
from worker.model.openai_client import CALL_HEADER

ROOT = Path(__file__).parents[2]
TALK: list[dict[str, Any]] = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
TOOLS = [
    {"type": "function", "function": {"name": "Read", "parameters": {"type": "object", "properties": {}}}}
]


def post(endpoint: StrictEndpoint, label: str = "j/1/1", **changes: Any) -> httpx2.Response:
    body = {"model": "m", "messages": TALK, "tools": TOOLS, **changes}
    return httpx2.post(
        f"{endpoint.url}/chat/completions", json=body, headers={CALL_HEADER: label}, timeout=30
    )


def test_the_stock_client_reads_both_forms() -> None:
    """The endpoint is judged by a client we did not write."""
    with StrictEndpoint(lambda _: Reply("Hello 世界", calls=(Call("Read", {"path": "ü"}),))) as endpoint:
        client = openai.OpenAI(base_url=endpoint.url, api_key="none", max_retries=0)
        messages: Any = TALK
        whole = client.chat.completions.create(model="m", messages=messages)
        with client.chat.completions.stream(model="m", messages=messages) as stream:
            for _ in stream:
                pass
            streamed = stream.get_final_completion()
        for message in (whole.choices[0].message, streamed.choices[0].message):
            assert message.content == "Hello 世界"
            assert message.tool_calls
            assert message.tool_calls[0].function.arguments == '{"path": "ü"}'  # type: ignore[union-attr]  # only functions here
        assert whole.choices[0].finish_reason == streamed.choices[0].finish_reason == "tool_calls"
        endpoint.assert_clean()


def test_a_violation_is_answered_400_and_kept() -> None:
    with StrictEndpoint(lambda _: Reply("x")) as endpoint:
        answer = post(endpoint, messages=[*TALK, *TALK])
        assert answer.status_code == 400
        assert "strict endpoint: system" in answer.json()["error"]["message"]
        assert [(violation.rule, violation.label) for violation in endpoint.violations] == [
            ("system", "j/1/1")
        ]
        with pytest.raises(AssertionError, match="system"):
            endpoint.assert_clean()


def test_the_prefix_is_compared_within_a_label() -> None:
    longer = [*TALK, {"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]
    with StrictEndpoint(lambda _: Reply("x")) as endpoint:
        assert post(endpoint, messages=longer).status_code == 200
        assert post(endpoint, "j/1/2").status_code == 200
        assert post(endpoint).status_code == 400
        assert [violation.rule for violation in endpoint.violations] == ["prefix"]


def test_a_request_refused_is_not_what_the_next_one_is_compared_with() -> None:
    with StrictEndpoint(lambda _: Reply("x")) as endpoint:
        assert post(endpoint, messages=[*TALK, {"role": "user", "content": "b"}]).status_code == 400
        assert post(endpoint).status_code == 200


def test_an_overflow_is_kept_apart_from_violations() -> None:
    with StrictEndpoint(lambda _: Reply("x"), window=100) as endpoint:
        answer = post(endpoint, max_tokens=100)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
        assert len(endpoint.overflows) == 1
        endpoint.assert_clean()


def test_failures_are_given_once_to_the_labels_they_are_for() -> None:
    with StrictEndpoint(lambda _: Reply("x")) as endpoint:
        endpoint.fail(HttpFailure(503, {"error": "later"}, {"Retry-After": "3"}), "a/*")
        assert post(endpoint, "b/1/1").status_code == 200
        refused = post(endpoint, "a/1/1")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "3")
        assert post(endpoint, "a/1/1").status_code == 200
        assert (endpoint.calls(), endpoint.calls("a/*"), endpoint.calls("c/*")) == (3, 2, 0)


def test_a_cut_stream_is_cut_and_an_ended_one_lacks_its_end_mark() -> None:
    with StrictEndpoint(lambda _: Reply("one two three")) as endpoint:
        endpoint.fail(StreamFailure(2, "end"))
        assert b"[DONE]" not in post(endpoint, stream=True).content
        endpoint.fail(StreamFailure(2, "cut"))
        with pytest.raises(httpx2.RemoteProtocolError):
            post(endpoint, stream=True)
        endpoint.fail(StreamFailure(1, {"error": {"message": "broken"}}))
        assert b"broken" in post(endpoint, stream=True).content
        assert b"[DONE]" in post(endpoint, stream=True).content


def test_a_minds_own_bug_is_a_violation() -> None:
    def broken(_: object) -> Reply:
        raise KeyError("oh")

    with StrictEndpoint(broken) as endpoint:
        assert post(endpoint).status_code == 400
        assert [violation.rule for violation in endpoint.violations] == ["mind"]


def test_a_key_is_asked_for_where_one_is_set() -> None:
    with StrictEndpoint(lambda _: Reply("x"), api_key="right") as endpoint:
        assert post(endpoint).status_code == 401


def test_as_a_process_with_a_script(tmp_path: Path) -> None:
    script = tmp_path / "replies.yaml"
    script.write_text("movements:\n  '*':\n    - text: from {{ movement }}\n      repeat: true\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.strict_endpoint", "--script", str(script)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        messages = [{"role": "system", "content": "Movement: work"}, {"role": "user", "content": "u"}]
        answer = httpx2.post(f"{url}/chat/completions", json={"model": "m", "messages": messages}, timeout=30)
        assert answer.json()["choices"][0]["message"]["content"] == "from work"
        httpx2.post(f"{url}/chat/completions", json={"model": "m", "messages": messages[:1]}, timeout=30)
        assert [found["rule"] for found in httpx2.get(f"{url}/_violations").json()] == ["order"]
        assert httpx2.get(f"{url}/_calls").json() == {"": 2}
    finally:
        process.terminate()
        assert process.wait(30) == 0
