"""Calls that fail, are cut, time out or are cancelled, against a server that misbehaves for real."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from jobs.errors import ConfigurationError
from jobs.settings import Settings
from tests.model.calling import DONE, a_request, ask_raw, call_delta, delta, event, model_of, serving
from tests.strict_endpoint import Call, HttpFailure, Raw, Reply, StreamFailure, StrictEndpoint
from worker.cancel import Cancelled, CancelToken
from worker.model.errors import ModelError, ModelErrorKind
from worker.model.loop import ModelLoop
from worker.model.openai_client import Endpoint, OpenAIModel
from worker.model.opening import open_model
from worker.model.types import ModelReply

WRITE = Reply("on it", calls=(Call("Write", {"path": "a", "content": "b" * 50}),))


def error_of(model: OpenAIModel, label: str = "job/1/1") -> ModelError:
    with pytest.raises(ModelError) as caught:
        model.complete(a_request(label=label), CancelToken())
    return caught.value


@pytest.mark.parametrize("ending", ["cut", "end", b"data: {half", b"\xff\xfe\n\n"])
def test_a_stream_cut_anywhere_is_thrown_away_whole(ending: str | bytes) -> None:
    """Also after complete-looking arguments, one chunk before the finish_reason."""
    with serving(lambda _: WRITE) as (endpoint, model):
        for after in range(8):
            endpoint.fail(StreamFailure(after, ending), f"job/{after}/1")
            assert error_of(model, f"job/{after}/1").kind is ModelErrorKind.INTERRUPTED, after
        assert model.complete(a_request(label="job/8/1"), CancelToken()).tool_calls


def test_a_reply_whose_finish_came_is_whole_though_the_end_mark_did_not() -> None:
    with serving(lambda _: WRITE) as (endpoint, model):
        endpoint.fail(StreamFailure(8, "cut"))
        reply = model.complete(a_request(), CancelToken())
        assert (len(reply.tool_calls), reply.usage.prompt_tokens) == (1, None)


def test_an_end_mark_without_a_finish_reason_will_do() -> None:
    assert ask_raw(delta(content="ok"), DONE).content == "ok"


def test_nothing_at_all_is_interrupted() -> None:
    with pytest.raises(ModelError) as caught:
        ask_raw(b"")
    assert caught.value.kind is ModelErrorKind.INTERRUPTED


@pytest.mark.parametrize("label", ["error", "abort"])
def test_a_finish_that_says_it_broke(label: str) -> None:
    with pytest.raises(ModelError) as caught:
        ask_raw(delta(content="half an ans"), delta(finish=label), DONE)
    assert caught.value.kind is ModelErrorKind.INTERRUPTED


def test_a_failed_call_is_not_repeated_by_the_client() -> None:
    """One owner of retries, and it is not the client."""
    with serving(lambda _: Reply("x")) as (endpoint, model):
        endpoint.fail(HttpFailure(503, {"error": {"message": "later"}}, {"Retry-After": "0"}))
        endpoint.fail(HttpFailure(429, {"error": {"message": "slow"}}, {"retry-after": "7"}))
        endpoint.fail(HttpFailure(429, {"error": {"message": "pay", "code": "insufficient_quota"}}))
        unavailable, limited, spent = error_of(model), error_of(model), error_of(model)
        assert (unavailable.kind, unavailable.retry_after) == (ModelErrorKind.TRANSIENT, 0)
        assert (limited.kind, limited.retry_after, limited.status) == (ModelErrorKind.RATE_LIMIT, 7, 429)
        assert spent.kind is ModelErrorKind.QUOTA
        assert endpoint.calls() == 3


def test_a_redirect_is_not_followed() -> None:
    """The key goes to the configured address and to no other."""
    with serving(lambda _: Reply("x")) as (endpoint, model), StrictEndpoint(lambda _: Reply("y")) as other:
        endpoint.fail(HttpFailure(307, b"", {"Location": f"{other.url}/chat/completions"}))
        assert error_of(model).kind is ModelErrorKind.BAD_REQUEST
        assert other.calls() == 0


def test_nobody_listens(free_port: int) -> None:
    error = error_of(OpenAIModel(Endpoint(f"http://127.0.0.1:{free_port}/v1", "", 30, 60)))
    assert error.kind is ModelErrorKind.TRANSIENT
    assert f"127.0.0.1:{free_port}: cannot be reached" in str(error)


def test_a_server_that_closes_without_a_word() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            connection, _ = listener.accept()
            connection.recv(100)
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        port = listener.getsockname()[1]
        assert (
            error_of(OpenAIModel(Endpoint(f"http://127.0.0.1:{port}/v1", "", 30, 60))).kind
            is ModelErrorKind.TRANSIENT
        )
        thread.join()


def test_silence_ends_at_the_idle_timeout() -> None:
    """Before the first byte it is no answer; within a stream it is a cut one."""
    with StrictEndpoint(lambda _: WRITE) as endpoint:
        model = model_of(endpoint, idle=0.3, total=60)
        gate = endpoint.hold("job/1/*")
        assert error_of(model, "job/1/1").kind is ModelErrorKind.TRANSIENT
        gate.release()
        endpoint.fail(StreamFailure(3, "hang"), "job/2/*")
        error = error_of(model, "job/2/1")
        assert error.kind is ModelErrorKind.INTERRUPTED
        assert "nothing came for 0.3 s" in str(error)


def test_pings_do_not_keep_a_call_alive_beyond_the_total_timeout() -> None:
    pings = Raw((b": ping\n\n",) * 100_000)
    with StrictEndpoint(lambda _: pings, chunk_delay=0.05) as endpoint:
        error = error_of(model_of(endpoint, idle=30, total=0.5))
        assert error.kind is ModelErrorKind.INTERRUPTED
        assert "within 0.5 s" in str(error)
        endpoint.wait_aborted()


@pytest.mark.parametrize("where", ["before the first byte", "within the stream"])
@pytest.mark.parametrize("reason", ["cancel", "shutdown", "lease_lost"])
def test_cancelling_ends_the_call_and_drops_the_connection(where: str, reason: str) -> None:
    """Bounded by the endpoint's own long wait: without the cancel, neither wait below would end."""
    with StrictEndpoint(lambda _: WRITE) as endpoint:
        model = model_of(endpoint, idle=600, total=600)
        gate = endpoint.hold() if where.startswith("before") else None
        if gate is None:
            endpoint.fail(StreamFailure(2, "hang"))
        cancel, outcome = CancelToken(), []

        def call() -> None:
            try:
                model.complete(a_request(), cancel)
            except Cancelled as stopped:
                outcome.append(stopped.reason)

        thread = threading.Thread(target=call)
        thread.start()
        gate.wait_held() if gate else endpoint.wait_calls(1)
        cancel.cancel(reason)
        thread.join(30)
        assert outcome == [reason]
        endpoint.wait_aborted()


def test_a_token_that_is_already_set_sends_nothing() -> None:
    cancel = CancelToken()
    cancel.cancel("shutdown")
    with serving(lambda _: Reply("x")) as (endpoint, model):
        with pytest.raises(Cancelled):
            model.complete(a_request(), cancel)
        assert endpoint.calls() == 0


def test_a_stopped_loop_ends_its_calls_and_starts_again() -> None:
    loop = ModelLoop()
    with StrictEndpoint(lambda _: Reply("x")) as endpoint:
        model = OpenAIModel(Endpoint(endpoint.url, "", 600, 600), loop)
        gate = endpoint.hold()
        errors: list[ModelError] = []
        thread = threading.Thread(target=lambda: errors.append(error_of(model)))
        thread.start()
        gate.wait_held()
        loop.stop()
        thread.join(30)
        assert [error.kind for error in errors] == [ModelErrorKind.INTERRUPTED]
        gate.release()
        assert model.complete(a_request(), CancelToken()).content == "x"
    loop.stop()
    assert not [thread for thread in threading.enumerate() if thread is loop._thread]


def test_200_streams_at_once_on_one_thread() -> None:
    """Each gets its own answer, and all of them wait at the same time on the process's one loop thread."""
    with StrictEndpoint(lambda request: Reply(f"answer to {request.label}", chunks=20)) as endpoint:
        model = model_of(endpoint)
        gate = endpoint.hold()
        answers: dict[str, str | None] = {}

        def call(label: str) -> None:
            answers[label] = model.complete(a_request(label=label), CancelToken()).content

        threads = [threading.Thread(target=call, args=(f"job-{number}/1/1",)) for number in range(200)]
        for thread in threads:
            thread.start()
        gate.wait_held(200)
        assert sum(thread.name == "sostenuto-model-loop" for thread in threading.enumerate()) == 1
        gate.release()
        for thread in threads:
            thread.join(60)
        assert answers == {f"job-{number}/1/1": f"answer to job-{number}/1/1" for number in range(200)}
        endpoint.assert_clean()


def test_what_is_sent() -> None:
    """The output limit goes out as it was given, and only then; so does the label."""
    with serving(lambda _: Reply("x")) as (endpoint, model):
        model.complete(a_request(max_output=77, label="abc/2/3"), CancelToken())
        model.complete(a_request(label="abc/2/4"), CancelToken())
        first, second = endpoint.requests
        assert first.body["max_tokens"] == 77
        assert first.headers["x-sostenuto-call"] == "abc/2/3"
        assert first.body["stream_options"] == {"include_usage": True}
        assert "max_tokens" not in second.body
        assert first.messages == a_request().messages


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("half \ud83d, whole \ud83d\ude00", "half \ufffd, whole 😀"),
        ("nul \0", "nul ␀"),
        ("\ud83d\0", "\ufffd␀"),
    ],
)
def test_text_no_server_takes_is_cleaned_before_it_is_sent(text: str, sent: str) -> None:
    """Lone surrogates and NUL, which a strict server refuses."""
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": text}]
    with serving(lambda _: Reply("x")) as (endpoint, model):
        model.complete(a_request(messages), CancelToken())
        assert endpoint.requests[0].messages[1]["content"] == sent
        endpoint.assert_clean()


def test_the_key_is_sent_and_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    key = "sk-test-0123456789abcdef"
    caplog.set_level("DEBUG")
    with StrictEndpoint(lambda _: Reply("x"), api_key=key) as endpoint:
        model = model_of(endpoint, key=key)
        assert model.complete(a_request(), CancelToken()).content == "x"
        endpoint.fail(HttpFailure(400, {"error": {"message": f"bad key {key}"}}, {}))
        error = error_of(model)
        wrong = error_of(model_of(endpoint, key=key + "0"))
    assert wrong.kind is ModelErrorKind.AUTHENTICATION
    assert key not in " ".join([repr(model), repr(error), str(error), error.hint or "", caplog.text])


def test_a_missing_key_is_named() -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_model(Settings(model="gpt-x"))
    assert "OPENAI_API_KEY" in str(caught.value)
    assert "OPENAI_BASE_URL" in (caught.value.hint or "")


def test_a_missing_model_is_named() -> None:
    with pytest.raises(ConfigurationError, match="SOSTENUTO_MODEL"):
        open_model(Settings())


def test_a_key_that_no_header_can_carry_is_named() -> None:
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY") as caught:
        open_model(Settings(model="gpt-x", openai_api_key=SecretStr("sk-“quoted”")))
    assert "quoted" not in str(caught.value)


def test_a_local_server_needs_no_key() -> None:
    with StrictEndpoint(lambda _: Reply("x")) as endpoint:
        model = open_model(Settings(model="local", openai_base_url=endpoint.url))
        assert model.complete(a_request(), CancelToken()).content == "x"


GOOD = (
    delta(role="assistant", content="Let me "),
    delta(content="see 世界"),
    call_delta({"index": 0, "id": "a", "function": {"name": "Read", "arguments": ""}}),
    call_delta({"index": 0, "function": {"arguments": '{"path"'}}),
    call_delta({"index": 0, "function": {"arguments": ': "a.txt"}'}}),
    call_delta({"index": 1, "id": "b", "function": {"name": "Grep", "arguments": '{"q": 1}'}}),
    delta(finish="tool_calls"),
    event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 6}}),
    DONE,
)
GOOD_CALLS = [("Read", '{"path": "a.txt"}'), ("Grep", '{"q": 1}')]


@pytest.fixture(scope="module")
def raw_server() -> Any:
    """One server for all examples; the mind answers what `answer` holds."""
    answer: list[Raw] = []
    with StrictEndpoint(lambda _: answer[-1]) as endpoint:
        yield answer, model_of(endpoint, idle=5)


def outcome(raw_server: Any, pieces: list[bytes], cut: bool) -> ModelReply | ModelError:
    answer, model = raw_server
    answer[:] = [Raw(tuple(piece for piece in pieces if piece), cut=cut)]
    try:
        reply: ModelReply = model.complete(a_request(), CancelToken())
    except ModelError as error:
        return error
    return reply


ONE_SERVER = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@ONE_SERVER
@given(length=st.integers(0, len(b"".join(GOOD))), cut=st.booleans(), size=st.integers(1, 200))
def test_a_truncated_stream_is_whole_or_nothing(raw_server: Any, length: int, cut: bool, size: int) -> None:
    body = b"".join(GOOD)[:length]
    found = outcome(raw_server, [body[at : at + size] for at in range(0, len(body), size)], cut)
    if isinstance(found, ModelReply):
        assert [(call.name, call.arguments) for call in found.tool_calls] == GOOD_CALLS
        assert found.content == "Let me see 世界"
    else:
        assert found.kind is ModelErrorKind.INTERRUPTED


@ONE_SERVER
@given(order=st.lists(st.sampled_from(range(len(GOOD))), max_size=14), cut=st.booleans())
def test_shuffled_and_doubled_events_never_crash(raw_server: Any, order: list[int], cut: bool) -> None:
    found = outcome(raw_server, [GOOD[index] for index in order], cut)
    ended = any(index in (6, 8) for index in order)
    assert isinstance(found, ModelError) or ended


@ONE_SERVER
@given(place=st.integers(0, len(b"".join(GOOD)) - 1), junk=st.binary(min_size=1, max_size=20))
def test_junk_in_the_stream_never_crashes(raw_server: Any, place: int, junk: bytes) -> None:
    body = b"".join(GOOD)
    found = outcome(raw_server, [body[:place], junk, body[place + len(junk) :]], cut=False)
    assert isinstance(found, ModelReply | ModelError)
    if isinstance(found, ModelReply):
        (found.content or "").encode()
        assert all(call.name.encode() is not None for call in found.tool_calls)
