"""The summariser: from rows to a summary, whatever the model answers."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.settings import Settings
from tests.agent.stage import Line, Stage
from tests.context.rows import gap, result, row, said, steps
from tests.strict_endpoint import Call, ChatRequest, HttpFailure, Reply, StreamFailure, StrictEndpoint
from worker.cancel import Cancelled, CancelToken
from worker.flattening import flatten, shortened
from worker.model.errors import ModelError, ModelErrorKind
from worker.summarising import Purpose, Spend, Summary, SummaryOrder, summarise, summary_prompt
from worker.tokens import estimate_tokens

TOO_LONG = HttpFailure(400, {"error": {"message": "too long", "code": "context_length_exceeded"}})


@pytest.fixture
def endpoint() -> Iterator[StrictEndpoint]:
    with StrictEndpoint(lambda _: Reply("a summary")) as endpoint:
        yield endpoint
        endpoint.assert_clean()


@pytest.fixture
def summariser(
    tmp_path: Path, endpoint: StrictEndpoint, _migrated_sqlite: Path
) -> Iterator[Callable[..., Stage]]:
    opened: list[Stage] = []
    shutil.copyfile(_migrated_sqlite, tmp_path / "test.db")

    def make(**changes: Any) -> Stage:
        stage = Stage(f"sqlite:///{tmp_path}/test.db", tmp_path, endpoint, None)
        stage.restart(**changes)
        opened.append(stage)
        return stage

    yield make
    for stage in opened:
        stage.close()


def order(**changes: Any) -> SummaryOrder:
    values: dict[str, Any] = {
        "purpose": Purpose.COMPACTION, "task": "Count the stars.", "models": ["test-model"], "label": "job/compaction/1",
    } | changes  # fmt: skip
    return SummaryOrder(**values)


def summed(stage: Stage, rows: list[Any], *lines: Line, **changes: Any) -> tuple[Summary, Spend]:
    if lines:
        stage.tell(*lines)
    spend = Spend()
    return summarise(stage.process, CancelToken(), rows, order(**changes), spend), spend


def told(request: ChatRequest) -> str:
    return str(request.messages[1]["content"])


def test_tool_messages_are_flattened_to_text(
    summariser: Callable[..., Stage], endpoint: StrictEndpoint
) -> None:
    """A summary request with tool messages but without schemas is refused by many servers."""
    rows = [
        said(3, "I look.", ("c1", "Bash", '{"command": "ls"}'), ("c2", "Read", '{"path": "a"}')),
        result(4, "c1", "a b"),
        result(5, "c2", "no such file", "Read", is_error=True),
        gap(6, "New comments:\n[1] ann: use metres"),
    ]

    summary, spend = summed(summariser(), rows)

    [request] = endpoint.requests
    assert [message["role"] for message in request.messages] == ["system", "user"]
    assert not request.tools
    for text in (
        "→ Bash {\"command\": \"ls\"}", "result of Bash\na b", "result of Read (error)\nno such file",
        "ann: use metres", "Count the stars.",
    ):  # fmt: skip
        assert text in told(request)
    assert (summary.text, summary.covered, summary.model) == ("a summary", 4, "test-model")
    assert spend.calls == 1
    assert spend.prompt_tokens == request.prompt_tokens


def test_a_tool_call_or_an_empty_answer_is_a_failed_attempt(
    summariser: Callable[..., Stage], endpoint: StrictEndpoint
) -> None:
    lines = (
        Reply(calls=(Call("Bash", {"command": "ls"}),)),
        Reply(text="", calls=(Call("Bash", {}),)),
        Reply(text="<tool_call>{}</tool_call>"),
        Reply(text="<think>hm</think>\n  the summary"),
    )

    summary, spend = summed(summariser(), steps(3, 4), *lines)

    assert summary.text == "the summary"
    assert spend.calls == 4


def test_a_model_that_never_writes_one_fails_with_what_it_did(
    summariser: Callable[..., Stage], endpoint: StrictEndpoint
) -> None:
    stage, spend = summariser(), Spend()
    endpoint.mind = lambda _: Reply(calls=(Call("Bash", {}),))

    with pytest.raises(ModelError, match=r"called a tool|no summary fits"):
        summarise(stage.process, CancelToken(), steps(3, 4), order(), spend)

    assert 1 < spend.calls < 10
    assert spend.prompt_tokens > 0


@pytest.mark.parametrize("ending", ["cut", "end"])
def test_a_reply_that_breaks_off_is_no_reason_to_ask_for_less(
    ending: str, summariser: Callable[..., Stage], endpoint: StrictEndpoint
) -> None:
    """A failure of the way is to be waited out: asked again at once, and for less, it looked like a window too small."""
    stage, spend = summariser(), Spend()
    endpoint.fail(StreamFailure(1, ending), times=10)

    with pytest.raises(ModelError, match=r"stream (broke|ended)") as raised:
        summarise(stage.process, CancelToken(), steps(3, 4), order(), spend)

    assert raised.value.kind is ModelErrorKind.INTERRUPTED
    assert spend.calls == 1


def test_another_model_is_asked_where_one_never_writes_a_summary(
    summariser: Callable[..., Stage], endpoint: StrictEndpoint
) -> None:
    """Also where its window leaves no room for a smaller request: the others are given all of it."""
    asked: list[tuple[str, int]] = []

    def mind(request: ChatRequest) -> Reply:
        asked.append((request.body["model"], request.prompt_tokens))
        return Reply("a summary") if request.body["model"] == "able" else Reply(calls=(Call("Bash", {}),))

    endpoint.mind = mind
    summary, spend = summed(summariser(context_window=2000), steps(3, 40), models=["unable", "able"])

    assert summary.text == "a summary"
    unable = [tokens for model, tokens in asked if model == "unable"]
    able = [tokens for model, tokens in asked if model == "able"]
    assert len(unable) + len(able) == spend.calls
    assert unable == sorted(unable, reverse=True)
    assert able[0] == unable[0]


def test_a_request_larger_than_the_window_is_chunked_and_the_summary_is_carried_on(
    summariser: Callable[..., Stage], endpoint: StrictEndpoint
) -> None:
    """History of three windows: every row goes into one request, none is lost, each request fits."""
    endpoint.profile = type(endpoint.profile)(window=8000)
    rows = steps(3, 60, "word " * 400)
    endpoint.mind = lambda request: Reply(f"summary {request.label}")

    summary, spend = summed(summariser(context_window=8000), rows)

    assert not endpoint.overflows
    assert spend.calls > 3
    everything = "\n".join(told(request) for request in endpoint.requests)
    for message in rows:
        assert everything.count(f"\n[{message.seq}] ") == 1
    for before, after in zip(endpoint.requests, endpoint.requests[1:], strict=False):
        assert f"summary {before.label}" in told(after)
    assert summary.covered == len(rows)


def test_each_retry_after_an_overflow_is_smaller(
    summariser: Callable[..., Stage], endpoint: StrictEndpoint
) -> None:
    """The window is smaller than we think: each request that overflows is followed by a smaller one."""
    endpoint.profile = type(endpoint.profile)(window=3000)
    rows = steps(3, 40, "word " * 200)

    summary, _ = summed(summariser(), rows)  # unknown: 10,000 are assumed

    assert len(endpoint.overflows) in (2, 3)
    assert all(request.prompt_tokens < 3000 for request in endpoint.requests)
    assert summary.covered == len(rows)


def test_an_endless_overflow_ends(summariser: Callable[..., Stage], endpoint: StrictEndpoint) -> None:
    stage, spend = summariser(), Spend()
    endpoint.mind = lambda _: TOO_LONG

    with pytest.raises(ModelError) as caught:
        summarise(stage.process, CancelToken(), steps(3, 40, "word " * 200), order(), spend)

    assert caught.value.kind is ModelErrorKind.OVERFLOW
    assert spend.calls < 10
    sizes = [request.prompt_tokens for request in endpoint.requests]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes)


def test_a_summary_never_grows_from_round_to_round(
    summariser: Callable[..., Stage], endpoint: StrictEndpoint
) -> None:
    """A summariser that echoes everything word for word, ten rounds: the cap holds."""
    endpoint.mind = lambda request: Reply(told(request))
    stage = summariser(context_window=8000)
    previous: str | None = None
    sizes = []
    for round_number in range(10):
        rows = steps(3, 5, f"round {round_number} " * 60)
        summary, _ = summed(stage, rows, previous=previous, label=f"job/compaction/{round_number}")
        previous = summary.text
        sizes.append(summary.tokens)

    assert max(sizes) <= 1000
    assert estimate_tokens(previous or "") == sizes[-1]


def test_a_failure_in_a_later_chunk_tells_what_was_spent(
    summariser: Callable[..., Stage], endpoint: StrictEndpoint
) -> None:
    stage, spend = summariser(context_window=8000), Spend()
    stage.tell(Reply("first"), HttpFailure(500, {"error": {"message": "broken"}}))

    with pytest.raises(ModelError) as caught:
        summarise(stage.process, CancelToken(), steps(3, 60, "word " * 300), order(), spend)

    assert caught.value.kind is ModelErrorKind.TRANSIENT
    assert spend.calls == 2
    assert spend.prompt_tokens == endpoint.requests[0].prompt_tokens


def test_the_next_model_is_asked_where_one_fails(
    summariser: Callable[..., Stage], endpoint: StrictEndpoint
) -> None:
    lines = (HttpFailure(401, {"error": {"message": "no"}}), Reply("from the second"))

    summary, _ = summed(summariser(), steps(3, 4), *lines, models=["first", "second"])

    assert (summary.text, summary.model) == ("from the second", "second")
    assert [request.body["model"] for request in endpoint.requests] == ["first", "second"]


def test_nothing_to_tell_needs_no_call(summariser: Callable[..., Stage], endpoint: StrictEndpoint) -> None:
    rows = [row(1, "system", "system", "You are"), row(2, "user", "head", "Now", extra={"block": "time"})]

    summary, spend = summed(summariser(), rows, previous="so far")

    assert (summary.text, summary.covered, spend.calls) == ("so far", 0, 0)


def test_a_cancel_stops_it(summariser: Callable[..., Stage], endpoint: StrictEndpoint) -> None:
    cancel = CancelToken()
    cancel.cancel("cancel")

    with pytest.raises(Cancelled):
        summarise(summariser().process, cancel, steps(3, 4), order(), Spend())


def test_a_japanese_job_is_summarised_in_japanese(
    summariser: Callable[..., Stage], endpoint: StrictEndpoint
) -> None:
    summed(summariser(), steps(3, 4), task="星を数えてください。")

    [request] = endpoint.requests
    assert "## 残っていること" in request.messages[0]["content"]
    assert told(request).endswith("要約を書いてください。")


def test_images_and_long_results_go_in_shortened(
    summariser: Callable[..., Stage], endpoint: StrictEndpoint
) -> None:
    """An image is its name and size; a result larger than the window keeps its head and its tail."""
    image = {"path": "output/plot.png", "width": 800, "height": 600, "sha": "x", "media_type": "image/png"}
    rows = [
        *steps(3, 1, f"BEGIN {'long ' * 100_000} END"),
        gap(5, "The image:", extra={"images": [image]}),
    ]

    summed(summariser(context_window=8000), rows)

    [request] = endpoint.requests
    assert request.prompt_tokens < 8000
    for text in ("[image output/plot.png 800×600]", "BEGIN", " END 0", "characters left out"):
        assert text in told(request)


def test_people_s_words_survive_beside_long_results(
    summariser: Callable[..., Stage], endpoint: StrictEndpoint
) -> None:
    directive = "Never touch the archive. " + "Mind every detail of it. " * 100

    summed(
        summariser(context_window=8000), [*steps(3, 1, "noise " * 50_000), gap(5, directive), *steps(6, 1)]
    )

    assert directive.strip() in "".join(told(request) for request in endpoint.requests)


@pytest.mark.parametrize("purpose", list(Purpose))
def test_operators_may_override_the_prompts(purpose: Purpose, tmp_path: Path) -> None:
    ours = summary_prompt(tmp_path, purpose, japanese=False, tokens=700)
    assert "at most 700 tokens" in ours
    assert "word for word" in ours
    (tmp_path / f"{purpose}.md").write_text("Short, $tokens, costs $5.")

    assert summary_prompt(tmp_path, purpose, japanese=False, tokens=700) == "Short, 700, costs $5."
    assert summary_prompt(tmp_path, purpose, japanese=True, tokens=9) == "Short, 9, costs $5."
    (tmp_path / f"{purpose}.ja.md").write_text("短く")
    assert summary_prompt(tmp_path, purpose, japanese=True, tokens=9) == "短く"


def test_the_prompts_folder_is_a_setting(tmp_path: Path) -> None:
    assert Settings(data_dir=tmp_path).prompts_dir == tmp_path / "prompts"


@pytest.mark.parametrize("text", ["a" * 5000, "漢字" * 3000, "word " * 3000, "😀" * 2000])
@pytest.mark.parametrize("budget", [20, 100, 1000])
def test_shortened_fits_and_keeps_both_ends(text: str, budget: int) -> None:
    short = shortened(text, budget)

    assert estimate_tokens(short) <= budget + 8
    assert short.startswith(text[0])
    assert short.endswith(text[-1])


def test_reminders_and_the_agents_own_prompts_are_left_out() -> None:
    rows = [
        row(1, "system", "system", "You are a star counter.", extra={"movement": "count"}),
        row(2, "user", "head", "the task", extra={"block": "instruction"}),
        row(3, "user", "head", "[1] ann: hello", extra={"block": "comments"}),
        gap(4, "<system-reminder>\ntodos\n</system-reminder>", extra={"reminder": "todos"}),
        row(5, "user", "summary", "earlier"),
    ]

    assert [entry.text for entry in flatten(rows)] == [
        "── the movement count begins",
        "[3] to the agent\n[1] ann: hello",
    ]
