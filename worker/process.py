"""One worker process: what its runs share, and its threads beside Celery's."""

from __future__ import annotations

import os
import platform
import threading
import time
from datetime import tzinfo
from importlib.metadata import version

from jobs.installation import Installation
from jobs.measures import COST, MODEL_CALLS, MODEL_SECONDS, TOKENS
from jobs.settings import Settings
from jobs.tracing import tell
from jobs.wakeups import AGENT_QUEUE, WakeUpPublisher
from storage import registry
from storage.engine import Database
from storage.limits import LimitOf
from storage.records import RunRef
from worker.cancel import CancelToken
from worker.exchanges import ExchangeKeeper
from worker.hooks import HookCaller, load_hooks
from worker.live import LiveRuns
from worker.mcp.servers import McpServers
from worker.measures import Measures
from worker.model.calls import ModelCalls
from worker.model.errors import ModelError, ModelErrorKind
from worker.model.profiles import Profile
from worker.model.turns import turn_at
from worker.model.types import ModelReply, ModelRequest
from worker.monitoring import Show, show_nobody
from worker.note_tools import NOTE_TOOLS
from worker.plugins import load_plugins
from worker.read_comments import NAME as READ_COMMENTS
from worker.recall import NAME as RECALL
from worker.sandbox.base import Sandbox
from worker.spans import model_span, reply_attributes
from worker.subtask_tool import NAME as SPAWN_SUBTASK
from worker.tools.catalogue import Catalogue, standard_tools
from worker.transition import NAME as TRANSITION

_PUBLISHED = (SPAWN_SUBTASK, *NOTE_TOOLS)  # tools made anew for each job, beside the catalogue's
_ALWAYS_THERE = (TRANSITION, READ_COMMENTS, RECALL)


class WorkerProcess:
    """Shared by all runs of the process. Everything here is thread-safe."""

    def __init__(
        self, installation: Installation, name: str, queues: list[str], sandbox: Sandbox | None
    ) -> None:
        self.installation = installation
        self.name = name
        self.queues = queues
        self.sandbox = sandbox
        self.mcp = McpServers(self.settings.mcp, sandbox, self.settings.data_dir)
        plugins = load_plugins([*(tool.name for tool in standard_tools()), *_PUBLISHED, *_ALWAYS_THERE])
        self.catalogue = Catalogue([*standard_tools(), *plugins.tools])
        self._problems = plugins.problems
        self._registered = False
        self.live = LiveRuns()
        self.measures = Measures()
        self.hooks = HookCaller(self.db, self.settings, load_hooks(self.settings))
        self.claiming = threading.Lock()  # one claim at a time, so that two suspects are never taken together
        self.stopping = threading.Event()
        self.draining = (
            threading.Event()
        )  # set before stopping where it was asked to leave when it has no job
        self.show: Show = show_nobody
        self.closed = threading.Event()  # Celery has left and the last acts are done
        self.zone: tzinfo = installation.settings.zone()
        self.cooldowns: dict[str, float] = {}  # endpoint → monotonic end; refreshed by the control thread
        self.strikes: dict[str, int] = {}  # endpoint → how often in a row it was set aside
        self.aside_reasons: dict[str, str] = {}
        self._giving_back: list[str] = []
        self._giving_back_lock = threading.Lock()
        self.exchanges = ExchangeKeeper(self.settings)
        self.models = ModelCalls(self.settings, self.db, self.exchanges)

    @property
    def settings(self) -> Settings:
        return self.installation.settings

    @property
    def db(self) -> Database:
        return self.installation.db

    @property
    def wakeups(self) -> WakeUpPublisher:
        return self.installation.wakeups

    @property
    def limit_of(self) -> LimitOf | None:
        """How many jobs of a key may run at once; None: nothing is limited."""
        return self.settings.limits.of if self.settings.limits.any_running else None

    def ask(self, request: ModelRequest, cancel: CancelToken, run: RunRef | None = None) -> ModelReply:
        """One model call. Raises ModelError, at once for an endpoint in cooldown or whose limits are reached; Cancelled;
        StorageError.

        `run` is whose call it is: without one the limits of the settings are not kept. A rate limit is told to all
        workers. Its cooldown ends when the endpoint said, only the jobs come back spread: spread too, it would be set
        anew, and longer, by each job that finds it, and never end.
        """
        endpoint = self.endpoint(request.model)
        left = self.cooldowns.get(endpoint, 0.0) - time.monotonic()
        if left > 0:
            limit = f"{endpoint} is in cooldown"
            raise ModelError(ModelErrorKind.RATE_LIMIT, limit, retry_after=left, endpoint=endpoint)
        profile = self.models.profile(request.model)
        try:
            with turn_at(self.db, profile, run, request.expected_tokens, self.wake) as turn:
                began = time.monotonic()
                with model_span(request) as begun:
                    reply = self.models.complete(request, cancel)
                    tell(begun, reply_attributes(reply))
                self.measures.observe(MODEL_SECONDS, time.monotonic() - began, request.model)
                usage = reply.usage
                turn.tokens = (usage.prompt_tokens or 0) + (usage.completion_tokens or 0) or None
        except ModelError as error:
            error.endpoint = endpoint
            self.measures.count(MODEL_CALLS, request.model, error.kind)
            if error.kind is ModelErrorKind.RATE_LIMIT and not error.own_limit:
                registry.cool_down(self.db, endpoint, error.limit_wait, str(error))
            raise
        self.measures.count(MODEL_CALLS, request.model, "answered")
        return reply

    def count_spent(self, prompt_tokens: int, completion_tokens: int, cost: float | None) -> None:
        """Counts what a model's call took."""
        self.measures.count(TOKENS, "prompt", by=prompt_tokens)
        self.measures.count(TOKENS, "completion", by=completion_tokens)
        if cost:
            self.measures.count(COST, by=cost)

    def profile(self, model: str) -> Profile:
        """What is known of a model: window, longest reply, rules, price. Costs no query."""
        return self.models.profile(model)

    def endpoint(self, model: str) -> str:
        """What cooldowns are shared by: the endpoint's address and the model."""
        return self.models.route(model).key

    @property
    def leaving(self) -> bool:
        """Whether it takes no more jobs, and gives back what it has at the next step boundary."""
        return self.stopping.is_set() or self.draining.is_set()

    def wake(self, job_id: str, queue: str = AGENT_QUEUE) -> None:
        """Sends the wake-up of a job that this process gave back."""
        self.wakeups.send(queue, job_id)

    def give_back_later(self, run_id: str) -> None:
        """Leaves a run's job to the heartbeat thread, which gives it back as soon as the database answers.

        Also for a claim of which nobody knows whether it was committed.
        """
        with self._giving_back_lock:
            self._giving_back.append(run_id)

    def take_given_back(self) -> list[str]:
        """The runs left to give back; the caller now has them."""
        with self._giving_back_lock:
            taken, self._giving_back = self._giving_back, []
            return taken

    def register(self) -> None:
        """Publishes this process and its tools, for submitters and the page."""
        registry.register_worker(
            self.db,
            {
                "name": self.name,
                "host": platform.node(),
                "pid": os.getpid(),
                "queues": self.queues,
                "concurrency": self.settings.concurrency,
                "version": version("sostenuto"),
                "sandbox": self.sandbox.description if self.sandbox else "none: Bash is refused",
                "tools": sorted([*self.catalogue.names(), *_PUBLISHED, *self.mcp.catalogue.names()]),
                "mcp": self.mcp.names,
                "problems": [*self._problems, *self.mcp.problems],
            },
            starting=not self._registered,
        )
        self._registered = True
