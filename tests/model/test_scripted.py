"""The scripted model: chosen from the request alone, filled in from real results, checked with line numbers."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from jobs.errors import ConfigurationError
from jobs.settings import Settings
from tests.strict_endpoint import StrictEndpoint, script_mind
from worker.cancel import Cancelled, CancelToken
from worker.model.errors import ModelError, ModelErrorKind
from worker.model.openai_client import Endpoint, OpenAIModel
from worker.model.opening import open_model
from worker.model.script import Script, ScriptedReply
from worker.model.scripted import ScriptedModel
from worker.model.types import Model, ModelReply, ModelRequest

ROOT = Path(__file__).parents[2]
NAMES = ("Read", "Write", "transition", "todo_write")
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in NAMES]


class Conversation:
    """What an agent loop does with a model, as short as can be."""

    def __init__(self, model: Model, movement: str = "work", instruction: str = "Add it up.") -> None:
        self.model = model
        self.messages: list[dict[str, Any]] = [
            {"role": "system", "content": f"You work.\n\nMovement: {movement}\n\nDo it."},
            {"role": "user", "content": instruction},
        ]

    def next(self, cancel: CancelToken | None = None) -> ModelReply:
        request = ModelRequest("scripted", list(self.messages), TOOLS, None, "job/1/1")
        reply = self.model.complete(request, cancel or CancelToken())
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in reply.tool_calls
        ]
        self.messages.append(
            {"role": "assistant", "content": reply.content, **({"tool_calls": calls} if calls else {})}
        )
        return reply

    def result(self, reply: ModelReply, *texts: str) -> None:
        for call, text in zip(reply.tool_calls, texts, strict=True):
            self.messages.append({"role": "tool", "tool_call_id": call.id, "content": text})

    def say(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})


def talk(script: str, **given: str) -> Conversation:
    return Conversation(ScriptedModel(Script.parse(script)), **given)


def arguments(reply: ModelReply) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(reply.tool_calls[0].arguments)
    return found


def documented_script() -> str:
    page = (ROOT / "docs" / "scripted-model.md").read_text()
    found = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert found
    return found[1]


def play(conversation: Conversation, csv: str) -> tuple[str, dict[str, Any]]:
    """The documented example from end to end: what it writes, and how it ends."""
    reading = conversation.next()
    assert (reading.content, arguments(reading)) == ("I read the figures first.", {"path": "input/sales.csv"})
    conversation.result(reading, csv)
    writing = conversation.next()
    conversation.result(writing, "Wrote output/total.txt")
    return arguments(writing)["content"], arguments(conversation.next())


@pytest.mark.parametrize(
    ("csv", "total", "rows"),
    [
        ("day,amount\nmon,12.5\ntue,7.25\n", "19.75\n", 2),
        ("day,amount\nmon,1\ntue,2\nwed,3.4\n[cut: read on with offset=4]", "6.4\n", 3),
    ],
)
def test_the_documented_example_depends_on_its_input(csv: str, total: str, rows: int) -> None:
    written, ending = play(talk(documented_script()), csv)
    assert written == total
    assert ending == {"next_step": "COMPLETE", "summary": f"The total of {rows} rows is in output/total.txt."}


def test_the_same_script_is_the_strict_endpoints_mind() -> None:
    with StrictEndpoint(script_mind(Script.parse(documented_script()))) as endpoint:
        model = OpenAIModel(Endpoint(endpoint.url, "", 30, 60))
        written, _ = play(Conversation(model), "day,amount\nmon,1.5\n")
        assert written == "1.5\n"
        endpoint.assert_clean()


def test_a_comment_is_answered_whenever_it_comes() -> None:
    conversation = talk(documented_script())
    conversation.result(conversation.next(), "day,amount\n")
    conversation.say("Please say it in euros.")
    assert conversation.next().content == "The amounts are in euros already."


def test_the_choice_needs_nothing_but_the_request() -> None:
    """A restart in the middle, on another machine: a model made anew goes on with the next reply."""
    script = "movements: {work: [{text: one}, {text: two}, {text: three}]}"
    conversation = talk(script)
    said = []
    for _ in range(3):
        conversation.model = ScriptedModel(Script.parse(script))
        said.append(conversation.next().content)
        conversation.say("go on")
    assert said == ["one", "two", "three"]


def test_movements_have_replies_of_their_own() -> None:
    script = "movements: {plan: [{text: planned}], '*': [{text: 'done by {{ movement }}'}]}"
    assert talk(script, movement="plan").next().content == "planned"
    assert talk(script, movement="check").next().content == "done by check"


def test_a_request_without_a_movement_is_for_a_summary() -> None:
    def ask(script: str) -> str | None:
        messages = [
            {"role": "system", "content": "Summarise."},
            {"role": "user", "content": "It said: 42 files"},
        ]
        return (
            ScriptedModel(Script.parse(script))
            .complete(ModelRequest("m", messages, [], None, "x"), CancelToken())
            .content
        )

    assert (
        ask("{movements: {'*': [{text: x}]}, summary: \"{{ request_text | search('[0-9]+ files') }}\"}")
        == "42 files"
    )
    assert "Scripted summary" in (ask("movements: {'*': [{text: x}]}") or "")


def test_several_calls_and_a_transition_in_one_reply() -> None:
    reply = talk(
        "movements: {work: [{calls: [{Read: {path: a}}, {Read: {path: b}}], transition: {next_step: review}}]}"
    ).next()
    assert [call.name for call in reply.tool_calls] == ["Read", "Read", "transition"]
    assert len({call.id for call in reply.tool_calls}) == 3
    assert reply.finish_reason == "tool_calls"
    assert reply.usage.prompt_tokens
    assert reply.usage.completion_tokens


def test_arguments_keep_their_types_and_text_is_sent_as_it_is() -> None:
    conversation = talk(
        """
        movements:
          work:
            - calls:
                - Read: {limit: 5, offset: "{{ 2 + 3 }}", path: "a{{ step }}", deep: [{flag: "{{ true }}"}]}
                - Read: '{"path": "half'
                - Read:
        """
    )
    reply = conversation.next()
    assert arguments(reply) == {"limit": 5, "offset": 5, "path": "a0", "deep": [{"flag": True}]}
    assert [call.arguments for call in reply.tool_calls[1:]] == ['{"path": "half', "{}"]


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("{step: 1}", True),
        ("{step: 2}", False),
        ("{user_contains: urgent}", True),
        ("{step: 1, user_contains: Begin}", False),
        ("{user_matches: 'urg.nt$'}", True),
        ("{results_contain: '42'}", True),
        ("{results_match: '^total: 4[0-9]$'}", True),
        ("{results_match: '^4'}", False),
        ("{step: 1, user_contains: calm}", False),
        ("{step: 1, expression: 'calls[0].result | length > 3'}", True),
        ("{expression: \"todos | selectattr('status', 'eq', 'pending') | list | length == 2\"}", False),
    ],
)
def test_conditions(condition: str, holds: bool) -> None:
    conversation = talk(
        f"movements: {{work: [{{calls: [{{Read: {{}}}}]}}, {{text: in turn}}, {{when: {condition}, text: out of turn}}]}}",
        instruction="Begin.",
    )
    conversation.result(conversation.next(), "total: 42")
    conversation.say("This is urgent")
    assert conversation.next().content == ("out of turn" if holds else "in turn")


def test_todos_and_json_and_regexes() -> None:
    conversation = talk(
        """
        movements:
          work:
            - calls: [{todo_write: {todos: [{id: a, content: x, status: pending}]}}]
            - text: "{{ todos[0].content }} {{ (last_result | from_json).count }} {{ last_result | find_all('[a-z]+') | first }}"
        """
    )
    conversation.result(conversation.next(), '{"count": 7}')
    assert conversation.next().content == "x 7 count"


def test_a_script_that_runs_out_says_where() -> None:
    conversation = talk("movements:\n  work:\n    - text: only one\n")
    conversation.next()
    conversation.say("more?")
    with pytest.raises(ModelError) as caught:
        conversation.next()
    assert caught.value.kind is ModelErrorKind.BAD_REQUEST
    assert str(caught.value) == "script:2: the movement 'work' has 1 replies, and this is request 2"


def test_a_last_reply_may_repeat() -> None:
    conversation = talk("movements: {work: [{text: first}, {text: again, repeat: true}]}")
    said = []
    for _ in range(4):
        said.append(conversation.next().content)
        conversation.say("and?")
    assert said == ["first", "again", "again", "again"]


def test_a_movement_without_replies_says_so() -> None:
    with pytest.raises(ModelError, match="no replies for the movement 'other'"):
        talk("movements: {work: [{text: x}]}", movement="other").next()


def test_an_error_as_the_script_has_it() -> None:
    with pytest.raises(ModelError) as caught:
        talk("movements: {work: [{error: {kind: rate_limit, retry_after: 9}}]}").next()
    assert (caught.value.kind, caught.value.retry_after) == (ModelErrorKind.RATE_LIMIT, 9)


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{{ nothing }}", "'nothing' is undefined"),
        ("{{ last_result | from_json }}", "JSONDecodeError"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ 'x' | search('(') }}", "error"),
    ],
)
def test_a_template_that_fails_names_its_reply(template: str, problem: str) -> None:
    with pytest.raises(ModelError) as caught:
        talk(f"movements:\n  work:\n    - text: {json.dumps(template)}\n").next()
    assert caught.value.kind is ModelErrorKind.BAD_REQUEST
    assert str(caught.value).startswith("script:3: ")
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("script", "place", "problem"),
    [
        ("movements:\n  work:\n    - txet: hi\n", "3:7", "unknown key 'txet'"),
        ("movements:\n  work:\n    - text: '{{ oops'\n", "3:7", "template"),
        ("movements:\n  work:\n    - text: a\n    - calls: [{Read: {path: '{% x %}'}}]\n", "4:", "template"),
        ("movements:\n  work:\n    - {text: a, when: {user_matches: '('}}\n", "3:", "regular expression"),
        ("movements:\n  work:\n    - {text: a, when: {expression: 'a +'}}\n", "3:", "expression"),
        ("movements:\n  work:\n    - delay: 3\n", "3:7", "needs one of"),
        ("movements:\n  work:\n    - {text: a, error: {kind: quota}}\n", "3:7", "nothing else to say"),
        ("movements:\n  work:\n    - calls: [{Read: {}, Write: {}}]\n", "3:", "one tool"),
        ("movements:\n  work:\n    - {error: {kind: odd}}\n", "3:", "kind"),
        ("movements:\n  work:\n    - {text: a, repeat: true}\n    - text: b\n", "1:", "only the last"),
        ("movements: {}\n", "1:", "movements"),
        ("replies: []\n", "1:", "movements"),
        ("movements: [\n", "2:1", ""),
        ("", "1:1", ""),
    ],
)
def test_a_wrong_script_names_the_line(script: str, place: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(script)
    with pytest.raises(ConfigurationError) as caught:
        open_model(Settings(model=f"scripted:{file}"))
    assert str(caught.value).startswith(f"{file}:{place}")
    assert problem in str(caught.value)


def test_a_script_that_is_not_there() -> None:
    with pytest.raises(ConfigurationError, match="no such file"):
        open_model(Settings(model="scripted:/nowhere/x.yaml"))


def test_a_delay_is_waited_out_and_ended_by_a_cancel() -> None:
    conversation = talk("movements: {work: [{text: at last, delay: 0.01}, {text: never, delay: 80000}]}")
    assert conversation.next().content == "at last"
    conversation.say("more")
    cancel, outcome = CancelToken(), []

    def ask() -> None:
        try:
            conversation.next(cancel)
        except Cancelled as stopped:
            outcome.append(stopped.reason)

    thread = threading.Thread(target=ask)
    thread.start()
    cancel.cancel("cancel")
    thread.join(30)
    assert outcome == ["cancel"]


def test_answering_is_pure() -> None:
    """The same request, the same reply: asked twice, and from many threads."""
    script = Script.parse("movements: {work: [{text: 'hello {{ instruction }}'}]}")
    messages = [{"role": "system", "content": "Movement: work"}, {"role": "user", "content": "you"}]
    answers: list[ScriptedReply] = []
    threads = [
        threading.Thread(target=lambda: answers.append(script.answer(messages, []))) for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [ScriptedReply(text="hello you")] * 20
