"""What chat templates take: one system message in front, and never two user messages in a row."""

from __future__ import annotations

from tests.agent.stage import COMPLETE, Stage, call, calls
from tests.context.driving import LEAN, agent_requests, drive, fill, is_summary, small_window
from tests.inherit.family import KEY, summarised
from tests.strict_endpoint import Answer, ChatRequest, Reply


def test_one_leading_system_message_whatever_is_added(stage: Stage) -> None:
    """Inheritance, a compaction's summary, reminders and comments are user texts; the system message never changes."""
    summarised(stage)
    before = len(stage.endpoint.requests)
    small_window(stage, compression={"keep_recent": 4})
    fill(stage)
    acts = 0

    def mind(request: ChatRequest) -> Answer:
        nonlocal acts
        if is_summary(request):
            return Reply("The gist of it.")
        if request.replies == 0 and acts == 0:
            todo = {"id": "1", "content": "dig the garden", "status": "pending"}
            return calls(call("todo_write", todos=[todo]))
        acts += 1
        if acts == 3:
            stage.comment(job_id, "use the spade")
        return COMPLETE if acts == 16 else calls(call("Act", n=acts))

    stage.endpoint.mind = mind
    job_id = stage.submit(piece=LEAN, **KEY)
    drive(stage, job_id)
    assert stage.job(job_id).state == "succeeded"
    requests = [request for request in agent_requests(stage)[before:] if request.label.startswith(job_id)]
    [system] = {request.messages[0]["content"] for request in requests}
    for request in requests:
        assert [m["role"] for m in request.messages].count("system") == 1
        assert request.messages[0]["role"] == "system"
    said = "\n".join(
        str(m["content"]) for request in requests for m in request.messages if m["role"] == "user"
    )
    for text in ("The stars were counted: 42.", "The gist of it.", "use the spade", "dig the garden"):
        assert text in said
        assert text not in system


def test_a_comment_a_reminder_and_a_wrap_up_in_one_gap(stage: Stage) -> None:
    """A person's words, the reminder of open todos and the prompt at 85%, all due at once: one user message."""
    small_window(stage, compression={"enabled": False})
    ids: list[str] = []

    def effect(_: object, given: dict[str, int]) -> str:
        if given["n"] == 5:
            stage.comment(ids[0], "one more thing")
        return "word " * (1200 if given["n"] < 5 else 5000)

    stage.acts[0].effect = effect
    todo = {"id": "1", "content": "dig the garden", "status": "pending"}
    lines = [
        calls(call("todo_write", todos=[todo])),
        *(calls(call("Act", n=n)) for n in range(1, 6)),
        COMPLETE,
    ]
    stage.tell(*lines)
    ids.append(stage.submit(piece=LEAN))
    stage.run()
    assert stage.job(ids[0]).state == "succeeded"
    *_, result, gap = stage.endpoint.requests[-1].messages
    assert (result["role"], gap["role"]) == ("tool", "user")
    for text in ("one more thing", "dig the garden", "of the context that you may use are used up"):
        assert gap["content"].count(text) == 1
    assert all(m["role"] != "user" for m in stage.endpoint.requests[-2].messages[2:])
