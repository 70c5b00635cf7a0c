"""The list of jobs, and what is done to several at once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Form, Query, Request
from starlette.responses import HTMLResponse, Response

from jobs.api.problems import Problem
from jobs.api.routing import Installed, JobsReader, JobsWriter
from jobs.api.tokens import Principal
from jobs.bulk import MOST_JOBS, Action, act_on_all
from jobs.installation import Installation
from jobs.states import TERMINAL, State
from jobs.web.pages import PageRoute, page
from jobs.web.panels import status_of
from jobs.web.words import Words, words_for
from storage.jobs import find_jobs
from storage.listing import JobFilter

router = APIRouter(route_class=PageRoute)
PAGE = 50
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

    def filter(self, principal: Principal) -> JobFilter:
        """For the storage; an owner can only be chosen by who sees everyone's jobs."""
        states = GROUPS.get(self.state) or ([self.state] if self.state in list(State) else [])
        owner = (self.owner or None) if principal.sees is None else principal.sees
        return JobFilter(owner, states, piece=self.piece or None, title=self.q.strip() or None)


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
    found = find_jobs(installation.db, wanted.filter(principal), PAGE + 1, before=wanted.before or None)
    following = wanted.url(before=found[PAGE - 1]["id"]) if len(found) > PAGE else None
    statuses = [status_of(row, words, installation) for row in found[:PAGE]]
    told = repr([(s.job.id, s.job.state, s.why, s.job.steps, s.job.cost, s.job.tokens) for s in statuses])
    mark = hashlib.sha256(told.encode(errors="replace")).hexdigest()[:16]
    return {"statuses": statuses, "following": following, "mark": mark}


@router.post("/bulk")
def act_on_several(
    request: Request,
    installation: Installed,
    principal: JobsWriter,
    action: Annotated[str, Form(max_length=20)],
    job: Annotated[list[str] | None, Form()] = None,
) -> HTMLResponse:
    """One action on each chosen job, each for itself: what one refuses does not hold up the others."""
    chosen = list(dict.fromkeys(job or ()))
    if action not in list(Action) or len(chosen) > MOST_JOBS:
        raise Problem(422, "InvalidRequest", f"one of {', '.join(Action)}, for at most {MOST_JOBS} jobs")
    outcomes = act_on_all(installation, Action(action), chosen, principal.sees, principal.owner)
    refused = [outcome.detail for outcome in outcomes if outcome.code is not None]
    done = len(outcomes) - len(refused)
    return page(request, "bulk_told.html", action=action, done=done, refused=refused)
