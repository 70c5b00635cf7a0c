"""The state machine: every story of people, workers, deaths and time that Hypothesis can think of."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jobs.errors import IllegalTransition, PredecessorNotFound
from jobs.lifecycle import Budget
from jobs.wakeups import AGENT_QUEUE, CONTEXT_QUEUE, SUMMARY
from storage.crashpoints import CrashPoint
from tests.agent.stage import PowerCut
from tests.proof.hands import Hand, power_cut
from tests.proof.invariants import Inspector
from tests.proof.replies import AGENT, BETWEEN, DEADLY, MUCH, SUMMARIES, SUMMARISED, told
from tests.proof.world import World
from tests.strict_endpoint import Answer

MOST_ROOTS = 3
MOST_HANDS = 3
THREAD = {"task_type": "ticket", "task_identifier": "42"}
PEOPLE = ("comment", "comment", "reply", "reply", "pause", "resume", "raise", "cancel", "retry")
INTERFERENCE = ("comment", "pause", "cancel", "taken")

WAITS = ("queued", "compressing", "pending")  # for a worker: states of jobs, and of their summaries

number = st.integers(0, 5)  # which of the jobs, or hands, there are
workers = st.integers(0, 1)
deaths = st.sampled_from((None, None, None, CrashPoint.CONTROL_COMMITTING, CrashPoint.CONTROL_COMMITTED))


@dataclass(frozen=True, slots=True)
class Fate:
    """What happens to a slice on its way: `act`, at a crash point's Nth passing."""

    point: CrashPoint | None
    act: Callable[[], None] = power_cut
    nth: int = 1


PEACE = Fate(None)


class Stories(RuleBasedStateMachine):
    """Rules are what may happen; after each of them the whole database is looked at."""

    world: ClassVar[World]

    def __init__(self) -> None:
        super().__init__()
        # Hypothesis turns off half of the rules in the mean story; one in which nothing is claimed tells nothing.
        chosen = self._rules_strategy
        chosen._enabled_rules_strategy = chosen.rules_strategy.filter(chosen.is_valid)

    @initialize(limited=st.sampled_from((False, False, True)), full=st.booleans())
    def begin(self, limited: bool, full: bool) -> None:
        """Every story has a job to tell of; in half of them its context is about to be compacted."""
        self.inspector = Inspector(self.world.db)
        self.words = 0
        self.roots = 0
        self.submit(thread=True, limited=limited, key=None, named=None, later=False, death=None)
        if full:
            self.fill_up(worker=0, hint=0)

    # --- people ---

    @rule(
        thread=st.booleans(),
        limited=st.booleans(),
        key=st.sampled_from((None, None, "k1")),
        named=st.one_of(st.none(), number),
        later=st.sampled_from((False, False, True)),
        death=st.sampled_from((None, None, CrashPoint.SUBMIT_COMMITTING, CrashPoint.SUBMIT_COMMITTED)),
    )
    @precondition(lambda self: self.roots < MOST_ROOTS)
    def submit(
        self,
        *,
        thread: bool,
        limited: bool,
        key: str | None,
        named: int | None,
        later: bool,
        death: CrashPoint | None,
    ) -> None:
        self.roots += 1
        more: dict[str, Any] = dict(THREAD) if thread else {}
        if limited:
            more["budget"] = Budget(max_steps=3)
        if later:
            more["available_at"] = self.world.db.clock() + 3000
        before = self.world.job_ids()
        if named is not None and before:
            more["inherits_from"] = before[named % len(before)]

        def act() -> None:
            job_id = self.world.submit("Do it.", idempotency_key=key, **more)
            assert job_id in self.world.job_ids()

        self._may_die(death, act, PredecessorNotFound)

    @rule(deed=st.sampled_from(PEOPLE), which=number, death=deaths)
    def person(self, deed: str, which: int, death: CrashPoint | None) -> None:
        if (job_id := self._job(which)) is not None:
            self._may_die(death, lambda: self.world.person(deed, job_id, self._word()), IllegalTransition)

    # --- workers ---

    @rule(queue=st.sampled_from((AGENT_QUEUE,) * 3 + (CONTEXT_QUEUE, SUMMARY)), worker=workers, hint=number,
          fate=st.one_of(st.none(), st.none(), st.sampled_from(DEADLY)))  # fmt: skip
    @precondition(lambda self: self._has_work(*WAITS))
    def claim(self, queue: str, worker: int, hint: int, fate: CrashPoint | None) -> None:
        """A wake-up is heard: the best due job need not be the hinted one, and there may be none."""
        self._claim(queue, worker, hint, fate)

    @rule(worker=workers, hint=number, replies=st.lists(AGENT, min_size=1, max_size=4))
    @precondition(lambda self: self._has_work("queued"))
    def work(self, worker: int, hint: int, replies: list[Answer]) -> None:
        """A few steps in which nothing happens."""
        hand = self._claim(AGENT_QUEUE, worker, hint, None)
        for reply in replies:
            if not hand.ended:
                self._answer(hand, reply)

    @rule(worker=workers, hint=number)
    @precondition(lambda self: self._has_work("queued"))
    def fill_up(self, worker: int, hint: int) -> None:
        """Steps whose results fill the context: the job is handed over to be compacted."""
        hand = self._claim(AGENT_QUEUE, worker, hint, None)
        while not hand.ended:
            self._answer(hand, MUCH)

    @rule(queue=st.sampled_from((CONTEXT_QUEUE, SUMMARY)), worker=workers, hint=number)
    @precondition(lambda self: self._has_work("compressing", "pending"))
    def summarise(self, queue: str, worker: int, hint: int) -> None:
        """A summary is written, if one is due."""
        hand = self._claim(queue, worker, hint, None)
        while not hand.ended:
            self._answer(hand, SUMMARISED)

    def _claim(self, queue: str, worker: int, hint: int, fate: CrashPoint | None) -> Hand:
        world = self.world
        hand = world.hand(queue, worker, self._job(hint))
        self._with_fate(hand, Fate(fate), lambda: world.begin(hand))
        note(f"   it works on {hand.ref or hand.answered}")
        return hand

    @rule(which=number, reply=AGENT, summary=SUMMARIES, fate=st.one_of(st.none(), st.none(), st.sampled_from(DEADLY)),
          nth=st.integers(1, 2))  # fmt: skip
    @precondition(lambda self: self.world.hands)
    def answer(self, which: int, reply: Answer, summary: Answer, fate: CrashPoint | None, nth: int) -> None:
        """The model answers one of the calls; the worker may die on the way to the next one."""
        self._answer(self._hand(which), reply, summary, Fate(fate, power_cut, nth))

    @rule(which=number, reply=AGENT, summary=SUMMARIES, point=st.sampled_from(BETWEEN),
          deed=st.sampled_from(INTERFERENCE), nth=st.integers(1, 2))  # fmt: skip
    @precondition(lambda self: self.world.hands)
    def answer_disturbed(
        self, *, which: int, reply: Answer, summary: Answer, point: CrashPoint, deed: str, nth: int
    ) -> None:
        """The same, and something happens to its job while it is on its way."""
        word = self._word()
        hand = self._hand(which)
        assert hand.ref is not None
        ref = hand.ref

        def disturb() -> None:
            if deed == "taken":
                self.world.expire(ref.run_id)
                self.world.take_back(self.world.processes[1], ref)
                return
            with contextlib.suppress(IllegalTransition):  # a summary's: the job has ended
                self.world.person(deed, ref.job_id, word)

        self._answer(hand, reply, summary, Fate(point, disturb, nth))

    def _answer(self, hand: Hand, reply: Answer, summary: Answer = SUMMARISED, fate: Fate = PEACE) -> None:
        assert hand.ref is not None
        assert hand.request is not None
        kind = hand.request.label.split("/")[1]
        answer = summary if kind in ("compaction", "final") else reply
        lost = not self.world.owns(hand)
        note(f"   {hand.ref.job_id[-6:]} ({kind}{', lost' if lost else ''}): {told(answer)}")
        before = self.inspector.look().written(hand.ref.job_id) if lost else None
        self._with_fate(hand, fate, lambda: self.world.answer(hand, answer))
        if before is not None:
            assert hand.ended, "a run that lost its job goes on"
            if fate.act is power_cut:
                assert self.inspector.look().written(hand.ref.job_id) == before, "a zombie wrote"

    @rule(which=number)
    @precondition(lambda self: self.world.hands)
    def die(self, which: int) -> None:
        """A worker is killed during a model call."""
        self.world.cut(self._hand(which))

    @rule(which=number)
    @precondition(lambda self: self.world.hands)
    def stop(self, which: int) -> None:
        """A worker is stopped in order."""
        self.world.stop(self._hand(which))

    @rule(which=number)
    @precondition(lambda self: self.world.hands)
    def expire(self, which: int) -> None:
        hand = self._hand(which)
        assert hand.ref is not None
        self.world.expire(hand.ref.run_id)

    @rule(worker=workers, death=st.sampled_from(
        (None, None, CrashPoint.SWEEP_COMMITTING, CrashPoint.SWEEP_COMMITTED, CrashPoint.WAKE_COMMITTED)))  # fmt: skip
    def sweep(self, worker: int, death: CrashPoint | None) -> None:
        self._may_die(death, lambda: self.world.sweep(self.world.processes[worker]))

    @rule(worker=workers)
    @precondition(lambda self: self.world.hands)
    def look(self, worker: int) -> None:
        self.world.look(self.world.processes[worker])

    @rule(worker=workers)
    @precondition(lambda self: self.world.hands)
    def beat(self, worker: int) -> None:
        self.world.beat(self.world.processes[worker])

    @rule(deadlines=st.booleans())
    def time_passes(self, deadlines: bool) -> None:
        self.world.pass_time(deadlines=deadlines)

    # --- what holds ---

    @invariant()
    def everything_is_as_it_must_be(self) -> None:
        if hasattr(self, "inspector"):
            self.inspector.look()
            assert not [count for count in self.world.effects.counts.values() if count > 1], (
                "an effect was repeated"
            )

    def teardown(self) -> None:
        """Whatever has happened: every job ends, or waits for a person with a reason."""
        try:
            self.world.fuse.disarm()
            self.world.quiesce()
            self.everything_is_as_it_must_be()
            self.world.endpoint.assert_clean()
        finally:
            self.world.forget_jobs()

    # --- helpers ---

    def _has_work(self, *kinds: str) -> bool:
        """Whether a worker could find something to do, and there is room for one more at work."""
        rows = self.inspector.book.jobs.values()
        return len(self.world.hands) < MOST_HANDS and any(
            row["state"] in kinds or row["summary_state"] in kinds for row in rows
        )

    def _job(self, which: int) -> str | None:
        known = self.world.job_ids()
        return known[which % len(known)] if known else None

    def _hand(self, which: int) -> Hand:
        return self.world.hands[which % len(self.world.hands)]

    def _word(self) -> str:
        self.words += 1
        return f"Look at word-{self.words} too."

    def _may_die(self, death: CrashPoint | None, act: Callable[[], None], *refusals: type[Exception]) -> None:
        """Does something in this thread, which may be its process's last deed, or be refused."""
        self.world.fuse.arm(death)
        try:
            act()
        except PowerCut:
            note(f"   and died at {death}")
        except refusals as refusal:
            note(f"   refused: {refusal}")
        finally:
            self.world.fuse.disarm()
        self.world.settle()

    def _with_fate(self, hand: Hand, fate: Fate, move: Callable[[], None]) -> None:
        """Moves the hand on; its fate meets it in its own thread, if it comes there."""
        happened: list[CrashPoint | None] = []

        def once() -> None:
            happened.append(fate.point)
            fate.act()

        self.world.fuse.arm(fate.point, once, fate.nth, hand)
        try:
            move()
        finally:
            self.world.fuse.disarm()
        self.world.settle()
        if happened:
            note(f"   {'died' if hand.died else 'disturbed'} at {fate.point}")
