"""`sostenuto watch`, and `submit --wait`: a job's history and messages as they are committed.

They are read from the database by their numbers (seq > last), so nothing is missed, nothing comes twice, and a
worker, a broker or this command may come and go meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from time import sleep, time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs.cli import options, render
from jobs.cli.context import opened_job
from jobs.cli.text import one_line, to_json
from jobs.durations import format_duration
from jobs.errors import JobDidNotSucceed
from jobs.states import TERMINAL, State
from storage.records import HistoryEvent, Message

if TYPE_CHECKING:
    from jobs.installation import Installation
    from jobs.views import JobView

POLL_SECONDS = 0.3
_PAGE = 500
_NEEDS_A_PERSON = frozenset({State.WAITING_HUMAN, State.PAUSED})


@dataclass(slots=True)
class Update:
    """What is new: the job as it is now, and what was committed since the last update, in order of time."""

    job: JobView
    news: list[HistoryEvent | Message] = field(default_factory=list)

    @property
    def settled(self) -> bool:
        """Nothing more happens by itself: the job has ended, or it needs a person."""
        return self.job.state in TERMINAL | _NEEDS_A_PERSON


def follow(installation: Installation, job_id: str) -> Iterator[Update]:
    """Updates from the job's beginning until it is settled; the last one is complete."""
    from jobs.views import get_job, list_events, list_messages

    last_event = last_message = 0
    while True:
        # The job first: what ended it is then certainly among the rows read after it.
        job = get_job(installation, job_id, installation.settings.owner)
        events = list_events(installation, job_id, last_event, _PAGE)
        messages = list_messages(installation, job_id, last_message, _PAGE)
        last_event = events[-1].seq if events else last_event
        last_message = messages[-1].seq if messages else last_message
        update = Update(job, sorted([*events, *messages], key=_when))
        yield update
        if len(events) == _PAGE or len(messages) == _PAGE:
            continue
        if update.settled:
            return
        sleep(POLL_SECONDS)


def watch(
    job: options.JobId,
    exit_status: Annotated[
        bool, typer.Option("--exit-status", help="Exit with code 7 unless the job succeeds.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Follow a job as it works. Ends when it ends, asks a person or is paused; --json: one JSON object a line."""
    with opened_job(job) as (installation, job_id):
        view = _show_progress(installation, job_id, json=json)
    if exit_status:
        _require_success(view)


def wait_for(installation: Installation, job: JobView, *, json: bool) -> None:
    """Follow a new job to its end and print it. Raises JobDidNotSucceed unless it succeeds."""
    if json:
        *_, last = follow(installation, job.id)
        print(to_json(last.job.as_dict()))
        view = last.job
    else:
        render.note(f"submitted {job.id}")
        view = _show_progress(installation, job.id, json=False)
    _require_success(view)


def _require_success(job: JobView) -> None:
    if job.state != State.SUCCEEDED:
        raise JobDidNotSucceed(f"job {job.id}: {render.state_text(job)}", hint=job.next_action)


def _show_progress(installation: Installation, job_id: str, *, json: bool) -> JobView:
    update = None
    status = _StatusLine()
    try:
        with status.shown(enabled=not json and render.on_terminal()):
            for update in follow(installation, job_id):
                status.tell(update.job)
                for item in update.news:
                    (_print_json if json else _print_item)(item)
    except KeyboardInterrupt:
        render.note(f"the job goes on; watch it again with: sostenuto watch {render.short(job_id)}")
        raise
    assert update is not None  # follow yields at least once
    if json:
        print(to_json({"type": "job", **update.job.as_dict()}, indent=None), flush=True)
    else:
        _print_end(update.job)
    return update.job


class _StatusLine:
    """The last line of a terminal: what the job is doing now."""

    def __init__(self) -> None:
        self._status: Any = None

    def shown(self, *, enabled: bool) -> AbstractContextManager[Any]:
        if not enabled:
            return nullcontext()
        self._status = render.console().status("")
        return self._status  # type: ignore[no-any-return] # Rich's Status, which is not imported where no one looks

    def tell(self, job: JobView) -> None:
        if self._status is None:
            return
        from rich.text import Text

        since = format_duration(max(0.0, time() - job.created_at))
        doing = (
            f"{render.state_text(job)} · {job.movement} · step {job.steps} · {job.tokens:,} tokens · {since}"
        )
        self._status.update(Text(one_line(doing, max(20, render.console().width - 4)), style="dim"))


def _when(item: HistoryEvent | Message) -> tuple[float, bool]:
    """Of one commit, the messages come before the change of state that they led to."""
    return (item.at, True) if isinstance(item, HistoryEvent) else (item.created_at, False)


def _print_item(item: HistoryEvent | Message) -> None:
    if isinstance(item, HistoryEvent):
        render.event_line(item)
    else:
        render.message_lines(item)


def _print_json(item: HistoryEvent | Message) -> None:
    kind = "event" if isinstance(item, HistoryEvent) else "message"
    print(to_json({"type": kind, **asdict(item)}, indent=None), flush=True)


def _print_end(job: JobView) -> None:
    render.line()
    render.line((render.state_text(job), render.STATE_STYLES.get(job.state, "")))
    if job.state == State.WAITING_HUMAN:
        render.question_lines(job)
    text = job.result or job.error
    if text:
        render.line()
        render.line(text.rstrip())
    if job.next_action and (render.on_terminal() or job.state != State.SUCCEEDED):
        render.line((f"next: {job.next_action}", "dim"))
