"""The list of jobs, and what is done to several at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Form, Query, Request
from starlette.responses import HTMLResponse, Response

from jobs import lifecycle
from jobs.api.problems import Problem
from jobs.api.routing import Installed, JobsReader, JobsWriter
from jobs.api.tokens import Principal
from jobs.errors import SostenutoError
from jobs.installation import Installation
from jobs.lifecycle import Budget
from jobs.states import TERMINAL, State
from jobs.views import JobView
from jobs.web.pages import PageRoute, page
from jobs.web.panels import status_of
from jobs.web.words import Words, words_for
from storage.finding import Filter, find_jobs

router = APIRouter(route_class=PageRoute)
PAGE = 50
MOST_AT_ONCE = 200
GROUPS: dict[str, tuple[State, ...]] = {
    "open": tuple(state for state in State if state not in TERMINAL),
    "yours": (State.WAITING_HUMAN, State.PAUSED),
    "ended": tuple(state for state in State if state in TERMINAL),
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The list's filters, as they stand in its URL."""

    state: str = ""
    piece: str = ""
    q: str = ""
    owner: str = ""
    before: str = ""

    def url(self, **changes: str) -> str:
        """The list's URL with these filters; a change of filters begins at the first page."""
        values = {name: getattr(self, name) for name in self.__slots__} | {"before": ""} | changes
        given = {name: value for name, value in values.items() if value}
        return f"/?{urlencode(given)}" if given else "/"

    @property
    def is_filtered(self) -> bool:
        return bool(self.state or self.piece or self.q or self.owner)

    def filter(self, principal: Principal) -> Filter:
        """For the storage; an owner can only be chosen by who sees everyone's jobs."""
        states = GROUPS.get(self.state) or ([self.state] if self.state in list(State) else [])
        owner = (self.owner or None) if principal.sees is None else principal.sees
        return Filter(owner, states, self.piece, self.q.strip())


def _wanted(
    state: Annotated[str, Query(max_length=40)] = "",
    piece: Annotated[str, Query(max_length=64)] = "",
    q: Annotated[str, Query(max_length=200)] = "",
    owner: Annotated[str, Query(max_length=200)] = "",
    before: Annotated[str, Query(max_length=64)] = "",
) -> Wanted:
    return Wanted(state, piece, q, owner, before)


WantedJobs = Annotated[Wanted, Depends(_wanted)]


@router.get("/")
def show_list(
    request: Request,
    installation: Installed,
    principal: JobsReader,
    wanted: WantedJobs,
    rows: Annotated[str | None, Query(max_length=64)] = None,
) -> Response:
    """The list. `rows` asks for its rows alone, and only if they are others than those with this mark."""
    values = _rows(installation, principal, wanted, words_for(request))
    if rows is None:
        pieces = [entry.name for entry in installation.library.entries()]
        return page(
            request,
            "list.html",
            wanted=wanted,
            pieces=pieces,
            groups=list(GROUPS),
            states=list(State),
            **values,
        )
    if rows == values["mark"]:
        return Response(status_code=204)
    return page(request, "list_rows.html", wanted=wanted, **values)


def _rows(installation: Installation, principal: Principal, wanted: Wanted, words: Words) -> dict[str, Any]:
    found = find_jobs(installation.db, wanted.filter(principal), PAGE + 1, wanted.before or None)
    following = wanted.url(before=found[PAGE - 1]["id"]) if len(found) > PAGE else None
    statuses = [status_of(row, words, installation) for row in found[:PAGE]]
    told = repr([(s.job.id, s.job.state, s.why, s.job.steps, s.job.cost, s.job.tokens) for s in statuses])
    mark = hashlib.sha256(told.encode(errors="replace")).hexdigest()[:16]
    return {"statuses": statuses, "following": following, "mark": mark}


_Action = Callable[[Installation, str, str | None, str], JobView]
ACTIONS: dict[str, _Action] = {
    "pause": lifecycle.pause,
    "resume": lambda where, job, owner, actor: lifecycle.resume(where, job, owner, actor, Budget()),
    "cancel": lifecycle.cancel,
    "retry": lambda where, job, owner, actor: lifecycle.retry(where, job, owner, actor, None),
}


@router.post("/bulk")
def act_on_several(
    request: Request,
    installation: Installed,
    principal: JobsWriter,
    action: Annotated[str, Form(max_length=20)],
    job: Annotated[list[str] | None, Form()] = None,
) -> HTMLResponse:
    """One action on each chosen job, each for itself: what one refuses does not hold up the others."""
    act = ACTIONS.get(action)
    chosen = list(dict.fromkeys(job or ()))
    if act is None or len(chosen) > MOST_AT_ONCE:
        raise Problem(422, "InvalidRequest", f"one of {', '.join(ACTIONS)}, for at most {MOST_AT_ONCE} jobs")
    done, refused = 0, []
    for job_id in chosen:
        try:
            act(installation, job_id, principal.sees, principal.owner)
            done += 1
        except SostenutoError as error:
            refused.append(str(error))
    return page(request, "bulk_told.html", action=action, done=done, refused=refused)
