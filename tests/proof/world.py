"""The world of the property test: submitters' doors, two worker processes, and what may happen between them.

Everything that is done here is done by the functions that the command line, the API and the workers call. What is
made up is the model's mind, time (columns are moved into the past), and death (a PowerCut at a crash point).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from jobs import comments, inheritance, lifecycle, submit
from jobs.installation import Installation
from jobs.lifecycle import Budget
from jobs.states import TERMINAL, State
from jobs.wakeups import AGENT_QUEUE, CONTEXT_QUEUE, SUMMARY
from storage.engine import wall_clock
from storage.models import jobs, runs
from storage.records import RunRef
from tests.agent.stage import COMPLETE, OWNER, Stage
from tests.proof.hands import Fuse, Hand, Hands
from tests.strict_endpoint import Answer, ChatRequest, Reply, StrictEndpoint
from worker import endings, final_summary
from worker.context_run import run_context
from worker.final_summary import run_summary
from worker.heartbeat import Control, Heartbeat
from worker.process import WorkerProcess
from worker.slices import run_slice
from worker.sweep import sweep_once, take_back
from worker.tools.base import ToolContext

PARENT, CHILD = "proof", "part"
ENDINGS = ("COMPLETE", "ASK", "ABORT", "WAIT_SUBTASKS")
WORK: dict[str, Callable[[WorkerProcess, str | None], str | None]] = {
    AGENT_QUEUE: run_slice,
    CONTEXT_QUEUE: run_context,
    SUMMARY: run_summary,
}
LONG = 3600.0  # a lease that ends only where a story says so
WAITS = ("FIRST_BACKOFF", "LONGEST_BACKOFF", "LONGEST_WAIT")  # of jobs, summaries and followers
SETTINGS: dict[str, Any] = {
    "lease_seconds": LONG,
    "slice_seconds": LONG,
    "slice_steps": 8,
    "max_attempts": 3,
    "max_subtasks": 3,
    "max_subtask_depth": 1,
    "context_window": 8000,
    "max_output_tokens": 500,
    "context": {"compression": {"token_threshold": 4000, "keep_recent": 3, "min_to_compress": 2}},
}


class WakeUps:
    """A broker that delivers nothing: what was sent is kept. A wake-up for what is not committed is a fault."""

    def __init__(self, db: Any) -> None:
        self.sent: list[tuple[str, str]] = []
        self._db = db

    def send(self, queue: str, job_id: str) -> None:
        with self._db.read() as conn:
            known = conn.execute(sa.select(jobs.c.id).where(jobs.c.id == job_id)).one_or_none()
        assert known is not None, "a wake-up was sent before its job was committed"
        self.sent.append((queue, job_id))

    def send_and_wait(self, queue: str, job_id: str) -> bool:
        self.send(queue, job_id)
        return False

    def close(self) -> None:
        pass


@dataclass
class Effects:
    """How often each call of a tool that is not safe to repeat was carried out."""

    counts: dict[tuple[str, str], int] = field(default_factory=dict)

    def act(self, context: ToolContext, arguments: dict[str, Any]) -> str:
        key = (context.job_id, context.call_id)
        self.counts[key] = self.counts.get(key, 0) + 1
        return "word " * int(arguments.get("n", 1))


def stop_the_clocks(patch: pytest.MonkeyPatch) -> None:
    """Nothing becomes due because a machine is slow: only where a story lets time pass."""
    for module in (endings, final_summary, inheritance):
        for name in WAITS:
            if hasattr(module, name):
                patch.setattr(module, name, LONG)


def settle_everything(request: ChatRequest) -> Answer:
    """The mind at the end of a story: every summary is written, every movement ends the job."""
    kind = request.label.split("/")[1]
    return Reply("All of it.") if kind in ("compaction", "final") else COMPLETE


class World:
    """Jobs, doors and workers over one database; `hands` are the slices at work."""

    def __init__(self, url: str, folder: Path, endpoint: StrictEndpoint) -> None:
        self.endpoint = endpoint
        self.stage = Stage(url, folder, endpoint, None)
        self.effects = Effects()
        self.stage.acts[0].effect = self.effects.act
        self.stage.acts[1].effect = lambda _, given: "again " * int(given.get("n", 1))
        self.fuse = Fuse()
        self.watch = Hands()
        self.hands: list[Hand] = []
        self._write_pieces()
        self.stage.reopen(**SETTINGS)
        self.doors = self.stage.doors
        self.db = self.doors.db
        self.wakeups = WakeUps(self.db)
        self.processes = [self.stage.process, self.stage.new_process("worker-b")]
        for process in self.processes:
            process.register()
            self.watch.watch(process)
            self._silence(process.installation)
        self._silence(self.doors)

    def _silence(self, installation: Installation) -> None:
        vars(installation)["wakeups"] = self.wakeups

    def _write_pieces(self) -> None:
        rules = [{"condition": "if so", "next": name} for name in ENDINGS]
        tools = ["Act", "Again", "todo_write", "spawn_subtask"]
        first: dict[str, Any] = {
            "name": "plan",
            "allowed_tools": tools,
            "rules": [{"condition": "then", "next": "act"}, *rules],
        }
        second: dict[str, Any] = {
            "name": "act",
            "allowed_tools": tools,
            "rules": [{"condition": "then", "next": "plan"}, *rules],
        }
        second["ask"] = {"resume": "rebuild", "deadline": 3600, "default_answer": "as you like"}
        self.stage.piece(PARENT, first, second)
        self.stage.piece(CHILD, {"name": "plan", "allowed_tools": tools[:3], "rules": rules[:3]})

    # --- what is there ---

    def job_ids(self) -> list[str]:
        with self.db.read() as conn:
            return list(conn.execute(sa.select(jobs.c.id).order_by(jobs.c.created_at, jobs.c.id)).scalars())

    def rows(self) -> list[dict[str, Any]]:
        with self.db.read() as conn:
            return [row._asdict() for row in conn.execute(sa.select(jobs).order_by(jobs.c.id))]

    def owns(self, hand: Hand) -> bool:
        """Whether the hand's run still holds its job, or its job's summary."""
        assert hand.ref is not None
        row = self.stage.row(hand.ref.job_id)
        return hand.ref.run_id in (row["run_id"], row["summary_run_id"])

    # --- what people do ---

    def submit(self, instruction: str, **more: Any) -> str:
        request = submit.SubmitRequest(instruction, piece=PARENT, **more)
        return submit.submit(self.doors, request, OWNER).job.id

    def person(self, deed: str, job_id: str, text: str = "") -> None:
        """One act of a person. Raises what the doors raise."""
        if deed == "comment":
            comments.add_comment(self.doors, job_id, OWNER, text, "ann")
        elif deed == "reply":
            comments.reply(self.doors, job_id, OWNER, text, "ann")
        elif deed == "resume":
            lifecycle.resume(self.doors, job_id, OWNER, "ann", Budget())
        elif deed == "raise":
            lifecycle.resume(self.doors, job_id, OWNER, "ann", Budget(max_steps=1000))
        elif deed == "retry":
            lifecycle.retry(self.doors, job_id, OWNER, "ann", None)
        elif deed == "pause":
            lifecycle.pause(self.doors, job_id, OWNER, "ann")
        else:
            assert deed == "cancel"
            lifecycle.cancel(self.doors, job_id, OWNER, "ann")

    # --- what workers do ---

    def hand(self, queue: str, worker: int, hint: str | None) -> Hand:
        """A worker that is about to hear a wake-up of this queue."""
        process = self.processes[worker]
        return Hand(self.watch, process, lambda: WORK[queue](process, hint))

    def begin(self, hand: Hand) -> None:
        """It hears it; its slice stands before its first model call, or is over already."""
        hand.begin()
        self._keep(hand)

    def take_back(self, process: WorkerProcess, run: RunRef) -> None:
        """What the sweep does with one expired run."""
        take_back(process, run)

    def answer(self, hand: Hand, answer: Answer) -> None:
        """The model answers the hand's call; the hand stands before its next one, or is over."""
        hand.late = not self.owns(hand)
        self.endpoint.mind = lambda _: answer
        hand.go_on()
        self._keep(hand)

    def _keep(self, hand: Hand) -> None:
        if hand.ended:
            self.hands = [other for other in self.hands if other is not hand]
        elif hand not in self.hands:
            self.hands.append(hand)

    def settle(self) -> None:
        """After the threads beside the slices have spoken: those that were stopped come to their end."""
        for hand in list(self.hands):
            hand.settle()
            self._keep(hand)

    def look(self, process: WorkerProcess) -> None:
        """What the control thread does twice a second."""
        Control(process).look()
        self.settle()

    def beat(self, process: WorkerProcess) -> None:
        """What the heartbeat's thread does every fifth of a lease."""
        Heartbeat(process).beat()
        self.settle()

    def stop(self, hand: Hand) -> None:
        """The hand's worker shuts down in order, and gives this run back."""
        live = next(live for live in hand.process.live.all() if live.ref == hand.ref)
        live.cancel.cancel("shutdown")
        self.settle()

    def expire(self, run_id: str | None = None) -> None:
        """Lets the time of a run's lease pass, or of every one."""
        ended = sa.update(runs).where(runs.c.ended_at.is_(None)).values(lease_expires_at=wall_clock() - 1)
        with self.db.write() as conn:
            conn.execute(ended if run_id is None else ended.where(runs.c.id == run_id))

    def sweep(self, process: WorkerProcess) -> None:
        sweep_once(process)
        self.settle()

    def pass_time(self, *, deadlines: bool = False) -> None:
        """Lets backoffs, waits for a summary and unanswered wake-ups grow old; with `deadlines` questions, too."""
        changes: dict[str, Any] = {
            "available_at": sa.case(
                (jobs.c.available_at > wall_clock(), wall_clock()), else_=jobs.c.available_at
            ),
            "woken_at": jobs.c.woken_at - 60,
            "summary_due_at": jobs.c.summary_due_at - 2 * LONG,
            "summary_woken_at": jobs.c.summary_woken_at - 60,
            "created_at": jobs.c.created_at - 2 * LONG,
        }
        if deadlines:
            changes["answer_due_at"] = jobs.c.answer_due_at - 2 * LONG
        with self.db.write() as conn:
            conn.execute(sa.update(jobs).values(changes))

    # --- the end ---

    def quiesce(self) -> None:
        """The story is over: hands die where they stand, and one worker goes on, led by the sweep's wake-ups alone."""
        for hand in list(self.hands):
            self.cut(hand)
        process = self.processes[0]
        self.endpoint.mind = settle_everything
        for _ in range(150):
            if all(at_rest(row) for row in self.rows()):
                return
            self.wakeups.sent.clear()
            self.expire()
            self.pass_time()
            sweep_once(process)
            for queue, job_id in list(self.wakeups.sent):
                WORK[queue](process, job_id)
        stuck = [
            (row["id"], row["state"], row["reason"], row["summary_state"])
            for row in self.rows()
            if not at_rest(row)
        ]
        raise AssertionError(f"stuck: {stuck}")

    def cut(self, hand: Hand) -> None:
        """The hand's worker dies where it stands."""
        hand.cut()
        self._keep(hand)

    def forget_jobs(self) -> None:
        """Makes room for the next story."""
        with self.db.write() as conn:
            conn.execute(sa.delete(jobs))
        self.effects.counts.clear()
        self.wakeups.sent.clear()
        for process in self.processes:
            process.take_given_back()
            process.cooldowns.clear()
            process.strikes.clear()
            assert not process.live.all(), "a slice has left its run behind"
        self.endpoint.requests.clear()

    def close(self) -> None:
        self.stage.close()


def at_rest(row: dict[str, Any]) -> bool:
    """It has ended, with its summary, or it waits for a person and says why."""
    state = State(row["state"])
    if state in TERMINAL:
        return bool(row["summary_state"] != "pending")
    return state in (State.PAUSED, State.WAITING_HUMAN) and row["reason"] is not None
