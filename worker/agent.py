"""The agent loop. What to do next is read from the committed rows alone, so a resumed run is the same code.

    begin the visit → [ comments → model → tools ]… → transition → next visit, or the end

Each function commits what it did before the next begins. An Ending is returned by whatever ended the run, after
its commit.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from jobs.arguments import BadArguments, decode_arguments
from jobs.errors import ConfigurationError
from jobs.measures import TOOL_CALLS, TOOL_SECONDS
from jobs.reasons import Reason
from jobs.states import Event, State
from jobs.tracing import tell
from storage.comments import list_comments
from storage.crashpoints import CrashPoint, crash_point
from storage.records import Checkpoint, Commit, Message, NewEvent, NewMessage
from worker import transition
from worker.accounting import marks_column, size_columns
from worker.decisions import decide
from worker.endings import Ending, end, end_after_model_error, end_at_boundary, tool_message
from worker.fallback import choose_model, model_answered, turn_to_another
from worker.images import admitted, image_rows, image_urls, references
from worker.job_run import JobRun
from worker.loops import NOT_RUN, end_if_looping, loop_warning
from worker.mcp.required import end_if_server_missing
from worker.mirrors import mirror_checklists, mirror_transitions
from worker.model.errors import ModelError, ModelErrorKind
from worker.model.types import ModelReply, ModelRequest, ToolCall
from worker.monitoring import sight
from worker.note_tools import CHECKLIST_CHANGES, plan_of
from worker.prices import cost_at
from worker.prompts import unread_text
from worker.reminders import todo_reminder
from worker.room import after_overflow, gap_rows, make_room, warning
from worker.spans import tool_span
from worker.tokens import estimate_tokens
from worker.tools.base import CrashPolicy, ToolContext, ToolResult
from worker.tools.dispatch import run_tool
from worker.visit import begin_visit, load_tools

MOST_FRUITLESS = 5  # replies in a row that ran no tool: text alone, or cut at the output limit
MOST_BATCH_TOKENS = 60_000  # of the results of one reply's calls together
LEAST_CALL_TOKENS = 1_000
LEAST_TOLD_TOKENS = 100  # of a call's result where even that much does not fit the window

INTERRUPTED = (
    "Interrupted: the worker died while this call was open. Its outcome is unknown. "
    "Verify what really happened before you repeat it."
)
TRUNCATED = "Not run: your reply was cut at the output limit, so this call is incomplete. Use smaller steps."
ONE_TRANSITION = "Not done: only the first transition of a reply counts."
NUDGE = (
    "Your last reply had no tool call, and plain text does not end this movement. Go on with the work, "
    "or call `transition` when its conditions are met."
)
CUT_TEXT = (
    "Your last reply was cut at the output limit and had no tool call. Say less, and go on in smaller steps."
)


def run_agent(job: JobRun) -> Ending:
    """Works on the job until its run ends in order, and returns how. Raises LeaseLost, Cancelled or StorageError."""
    ending = end_if_server_missing(job) if job.piece.required_mcp else None
    while ending is None:
        job.live.cancel.raise_if_cancelled()
        if open_calls := unanswered(job.rows):
            ending = answer_calls(job, open_calls)
        elif (ending := end_at_boundary(job)) is None:
            if job.visit_has_begun:
                ending = take_step(job)
            else:
                begin_visit(job)
                job.process.show(sight(State.RUNNING, job.row))
    job.step_ends()
    return ending


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call of the last reply that has no result yet. `run_id` is the run that committed the reply."""

    id: str
    name: str
    arguments: str
    run_id: str


def unanswered(rows: list[Message]) -> list[OpenCall]:
    """The open calls of the last reply, in call order."""
    answered: set[str | None] = set()
    for row in reversed(rows):
        if row.role == "tool":
            answered.add(row.tool_call_id)
        elif row.role == "assistant":
            calls = (
                OpenCall(call["id"], call["name"], call["arguments"], row.run_id)
                for call in row.tool_calls or ()
            )
            return [call for call in calls if call.id not in answered]
    return []


# --- one step: what is new, the model, its reply ---


def take_step(job: JobRun) -> Ending | None:
    """Shows the model what is new, asks it, and commits its reply with the calls it intends."""
    if ending := end_if_looping(job):
        return ending
    job.step_begins()
    load_tools(job)
    choose_model(job)
    try:
        job.process.models.learn_window(job.model_name, job.live.cancel)
    except ConfigurationError as error:
        return _not_configured(job, error)
    if left := make_room(job):
        return left.ending
    fill_gap(job)
    if job.size.tokens >= job.limits.stop and (left := make_room(job)):
        return left.ending
    messages = job.conversation.messages(job.rows, image_urls(job), job.row["trim_seq"])
    request = ModelRequest(
        model=job.model_name,
        messages=messages,
        tools=job.tool_schemas,
        max_output_tokens=job.max_output,
        label=job.label,
        step=job.row["steps"] + 1,
        form=job.marks.form,
        expected_tokens=job.size.tokens,
        draft=job.begin_draft(),
    )
    try:
        reply = job.process.ask(request, job.live.cancel, job.ref)
    except ModelError as error:
        if error.epochs:  # what was sent and refused opened them all the same
            job.commit(Checkpoint(Commit.GAP, values={"epoch": job.row["epoch"] + error.epochs}))
        if error.kind is ModelErrorKind.OVERFLOW:
            return after_overflow(job, error)
        if turn_to_another(job, error):
            return None
        return end_after_model_error(job, error, Checkpoint(Commit.END))
    except ConfigurationError as error:
        return _not_configured(job, error)
    model_answered(job.process, request.model)
    return store_reply(job, request, reply)


def _not_configured(job: JobRun, error: ConfigurationError) -> Ending:
    return end(job, Event.FAIL, Reason.MODEL_NOT_CONFIGURED, {"detail": f"{error} ({error.hint})"})


def fill_gap(job: JobRun) -> None:
    """Commits unread comments, a nudge and reminders that are due, just before the call that shows them."""
    parts: list[str] = []
    seen = None
    if job.unread:
        comments = list_comments(job.process.db, job.job_id, job.row["inbox_seen"])
        seen = comments[-1].number
        parts.append(unread_text(comments, job.process.zone, _room(job) // 4))
    if job.rows[-1].role == "assistant":
        parts.append(CUT_TEXT if _is_cut(job.rows[-1]) else NUDGE)
    rows = image_rows(job)
    if parts:
        text = "\n\n".join(parts)
        rows.append(NewMessage("user", "gap", text, tokens=estimate_tokens(text)))
    about_context, marks = gap_rows(job)
    rows += about_context
    rows += [row for row in (loop_warning(job), todo_reminder(job)) if row is not None]
    if rows:
        job.commit(Checkpoint(Commit.GAP, messages=rows, inbox_seen=seen, values=marks))


def store_reply(job: JobRun, request: ModelRequest, reply: ModelReply) -> Ending | None:
    """Commits the reply, or the end of the run where it is none to go on with."""
    checkpoint = _spend(job, request, reply)
    if reply.refusal or reply.finish_reason == "content_filter":
        detail = reply.refusal or reply.content or "filtered by the endpoint"
        return end(job, Event.FAIL, Reason.MODEL_REFUSED, {"detail": detail[:500]}, checkpoint=checkpoint)
    if not reply.tool_calls and not (reply.content or "").strip():
        # Nothing to store: servers refuse an assistant message without content and calls.
        nothing = ModelError(
            ModelErrorKind.TRANSIENT, f"the reply was empty (finish_reason {reply.finish_reason})"
        )
        return end_after_model_error(job, nothing, checkpoint)
    checkpoint.steps = 1
    checkpoint.messages = [_assistant_message(request.model, reply, checkpoint)]
    is_cut = reply.finish_reason == "length"
    if is_cut:
        checkpoint.messages += [_error_result(call.id, call.name, TRUNCATED) for call in reply.tool_calls]
    _measure(job, request, reply, checkpoint)
    if (is_cut or not reply.tool_calls) and _fruitless(job.rows) + 1 >= MOST_FRUITLESS:
        problem = "was cut at the output limit" if is_cut else "had no tool call"
        data = {"detail": f"{MOST_FRUITLESS} replies in a row ran no tool; the last one {problem}"}
        return end(job, Event.FAIL, Reason.NO_TRANSITION, data, checkpoint=checkpoint)
    job.commit(checkpoint)
    return None


def _spend(job: JobRun, request: ModelRequest, reply: ModelReply) -> Checkpoint:
    """The tokens of a call, estimated where the endpoint did not count them, and their cost where it is known."""
    usage = reply.usage
    prompt = usage.prompt_tokens or job.size.tokens
    completion = usage.completion_tokens or estimate_tokens(_reply_text(reply))
    values: dict[str, Any] = {"model_failures": 0}
    checkpoint = Checkpoint(Commit.REPLY, prompt_tokens=prompt, completion_tokens=completion, values=values)
    if reply.epochs:
        values["epoch"] = job.row["epoch"] + reply.epochs
    if reply.adapted:
        data = {"model": request.model, "refused": list(reply.adapted)}
        checkpoint.events.append(NewEvent("model_adapted", "worker", data=data))
    cost = cost_at(job.process.profile(request.model).price, prompt, completion, usage.cached_tokens)
    if cost is not None:
        checkpoint.cost = cost
    elif job.row["cost_known"]:
        values["cost_known"] = False
        if job.row["max_cost"] is not None:  # a limit that cannot hold
            checkpoint.events.append(NewEvent("cost_unknown", "worker", data={"model": request.model}))
    return checkpoint


def _measure(job: JobRun, request: ModelRequest, reply: ModelReply, checkpoint: Checkpoint) -> None:
    """Takes the size of the context with the reply in it into the reply's commit, with the warning that is due."""
    counted, limits = job.size.counted(reply.usage), job.limits
    size = counted.grown(sum(message.tokens for message in checkpoint.messages))
    marks = job.marks
    events = warning(job, size.tokens, marks)
    checkpoint.events += events
    checkpoint.values |= size_columns(size) | marks_column(
        replace(
            marks,
            model=request.model,
            form=reply.form,
            overflowed=False,
            ceiling=0 if counted.measured > marks.ceiling else marks.ceiling,
            warned=marks.warned or bool(events),
            usable=limits.usable,
            compact=limits.compact,
        )
    )


def _reply_text(reply: ModelReply) -> str:
    return "\n".join([reply.content or "", *(f"{call.name} {call.arguments}" for call in reply.tool_calls)])


def _assistant_message(asked: str, reply: ModelReply, spent: Checkpoint) -> NewMessage:
    extra: dict[str, object] = {"model": reply.model, "finish": reply.finish_reason}
    if reply.model != asked:
        extra["asked"] = asked
    extra |= {"prompt_tokens": spent.prompt_tokens, "completion_tokens": spent.completion_tokens}
    usage = reply.usage
    if usage.cached_tokens is not None:
        extra["cached_tokens"] = usage.cached_tokens
    if usage.prompt_tokens is None or usage.completion_tokens is None:
        extra["estimated"] = True
    if spent.cost:
        extra["cost"] = spent.cost
    if reply.reasoning:
        extra["reasoning"] = reply.reasoning
    stored = [_stored_call(call) for call in reply.tool_calls]
    # Broken arguments are kept here and sent back as {}.
    shown = [
        reply.content or "",
        *(f"{c['name']} {'{}' if 'broken' in c else c['arguments']}" for c in stored),
    ]
    tokens = estimate_tokens("\n".join(shown))
    return NewMessage(
        "assistant", "assistant", reply.content, tool_calls=stored or None, extra=extra, tokens=tokens
    )


def _stored_call(call: ToolCall) -> dict[str, object]:
    stored: dict[str, object] = {"id": call.id, "name": call.name, "arguments": call.arguments}
    if call.raw_id != call.id:
        stored["raw_id"] = call.raw_id
    if call.extra:
        stored["extra"] = call.extra
    try:
        decode_arguments(call.arguments, {})
    except BadArguments:
        stored["broken"] = True  # answered with an error, and sent back as {}
    return stored


def _fruitless(rows: list[Message]) -> int:
    """How many of the last replies ran no tool, without one between them that did."""
    count = 0
    for row in reversed(rows):
        if row.role == "assistant":
            if row.tool_calls and not _is_cut(row):
                break
            count += 1
    return count


def _is_cut(row: Message) -> bool:
    return (row.extra or {}).get("finish") == "length"


# --- answering the calls of a reply ---


def answer_calls(job: JobRun, calls: list[OpenCall]) -> Ending | None:
    """Runs the open calls in order, each result its own commit; a transition is decided last, after its siblings."""
    load_tools(job)
    work = [call for call in calls if call.name != transition.NAME]
    left, least = _batch_budget(job, len(work))
    for position, call in enumerate(work):
        result = _result_of(job, call, max(left // (len(work) - position), least))
        tokens = estimate_tokens(result.content)
        left -= tokens + sum(image.tokens for image in result.images)
        message = tool_message(call.id, call.name, result.content, is_error=result.is_error, tokens=tokens)
        message.extra = references(result) if result.ran else {NOT_RUN: True}
        values: dict[str, object] = {} if result.folder is None else {"shell_folder": result.folder}
        job.commit(
            Checkpoint(
                Commit.RESULT,
                messages=[message],
                plan=plan_of(call.name, call.arguments, result),
                images=result.images,
                values=values,
            )
        )
        if call.name in CHECKLIST_CHANGES and not result.is_error:
            mirror_checklists(job)
    choices = [call for call in calls if call.name == transition.NAME]
    if len(choices) > 1:
        job.commit(
            Checkpoint(
                Commit.RESULT,
                messages=[_error_result(call.id, call.name, ONE_TRANSITION) for call in choices[1:]],
            )
        )
    ending = decide(job, choices[0].id, choices[0].arguments) if choices else None
    if ending is not None:
        mirror_transitions(job)
    return ending


def _batch_budget(job: JobRun, calls: int) -> tuple[int, int]:
    """Tokens for the results of one reply's calls together, and the least for each.

    Half of the room left in the window; 1,000 a call if they are more, and less where so much would not fit.
    """
    least = LEAST_CALL_TOKENS
    if job.window_is_known:  # a guessed window may be far too small
        least = max(min(least, _room(job) * 3 // 4 // max(calls, 1)), LEAST_TOLD_TOKENS)
    return max(min(_room(job) // 2, MOST_BATCH_TOKENS), least * calls), least


def _room(job: JobRun) -> int:
    """Tokens left in the window, the next reply's set aside."""
    return job.limits.usable - job.size.tokens


def _result_of(job: JobRun, call: OpenCall, budget: int) -> ToolResult:
    tool = job.tools.get(call.name)
    died = call.run_id != job.ref.run_id  # an earlier run may have begun it
    if died and tool is not None and tool.crash is CrashPolicy.UNKNOWN_AFTER_CRASH:
        return ToolResult(INTERRUPTED, is_error=True)
    context = ToolContext(
        workspace=job.workspace,
        cancel=job.live.cancel,
        budget_tokens=budget,
        job_id=job.job_id,
        call_id=call.id,
        sandbox=job.process.sandbox,
        bash_timeout=job.process.settings.bash_timeout,
        folder=job.row["shell_folder"] or "",
    )
    crash_point(CrashPoint.TOOL_STARTING)
    began = time.monotonic()
    with tool_span(job.job_id, call.name if tool is not None else "unknown", call.id) as begun:
        result = admitted(job, run_tool(call.name, call.arguments, context, job.tools))
        tell(begun, {"error.type": "tool_error" if result.is_error else None})
    _count_call(job, call.name, result, time.monotonic() - began)
    crash_point(CrashPoint.TOOL_ENDED)
    return result


def _count_call(job: JobRun, name: str, result: ToolResult, seconds: float) -> None:
    measures = job.process.measures
    name = name if name in job.tools else "unknown"
    if result.ran:
        measures.observe(TOOL_SECONDS, seconds, name)
    measures.count(TOOL_CALLS, name, "error" if result.is_error else "done")


def _error_result(call_id: str, name: str, text: str) -> NewMessage:
    return tool_message(call_id, name, text, is_error=True, tokens=estimate_tokens(text))
