"""The list of jobs, and what is done to several at once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, tzinfo
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
from jobs.web.counts import Counts
from jobs.web.pages import PageRoute, page
from jobs.web.panels import status_of
from jobs.web.words import Words, words_for
from storage.listing import JobFilter, find_jobs, floor_of

router = APIRouter(route_class=PageRoute)
PAGE = 50
# What calls for a person first, then what goes on by itself, then what has ended.
COUNTED = (
    State.WAITING_HUMAN, State.PAUSED, State.RUNNING, State.COMPRESSING, State.QUEUED, State.INHERITING, State.WAITING_SUBTASKS,
    State.SUCCEEDED, State.FAILED, State.ABORTED, State.CANCELLED,
)  # fmt: skip
LOOKED_AT = 20_000  # jobs, for one page
GROUPS: dict[str, tuple[State, ...]] = {
    "open": tuple(state for state in State if state not in TERMINAL),
    "yours": (State.WAITING_HUMAN, State.PAUSED),
    "ended": tuple(state for state in State if state in TERMINAL),
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The list's filters, as they stand in its URL. `since` and `until` are ISO 8601."""

    state: str = ""
    piece: str = ""
    q: str = ""
    owner: str = ""
    repository: str = ""
    user: str = ""
    since: str = ""
    until: str = ""
    before: str = ""

    def url(self, **changes: str) -> str:
        """The list's URL with these filters; a change of filters begins at the first page."""
        values = {name: getattr(self, name) for name in self.__slots__} | {"before": ""} | changes
        given = {name: value for name, value in values.items() if value}
        return f"/?{urlencode(given)}" if given else "/"

    @property
    def is_filtered(self) -> bool:
        return bool(self.state or self.piece or self.q or self.owner or self.has_more)

    @property
    def has_more(self) -> bool:
        """Whether a filter is set that is folded away otherwise."""
        return bool(self.repository or self.user or self.since or self.until)

    def owned_by(self, principal: Principal) -> str | None:
        """Whose jobs are looked at; an owner can only be chosen by who sees everyone's. None: everyone's."""
        return (self.owner or None) if principal.sees is None else principal.sees

    def filter(self, principal: Principal, zone: tzinfo) -> JobFilter:
        """For the storage. A time without a zone is in `zone`; what is no time is none."""
        states = GROUPS.get(self.state) or ([self.state] if self.state in list(State) else [])
        return JobFilter(
            self.owned_by(principal),
            states,
            piece=self.piece or None,
            title=self.q.strip() or None,
            repository=self.repository.strip() or None,
            user=self.user.strip() or None,
            created_after=_moment(self.since, zone),
            created_before=_moment(self.until, zone),
        )


def _moment(text: str, zone: tzinfo) -> float | None:
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        return None


def _wanted(  # noqa: PLR0917  FastAPI passes them by name
    state: Annotated[str, Query(max_length=40)] = "",
    piece: Annotated[str, Query(max_length=64)] = "",
    q: Annotated[str, Query(max_length=200)] = "",
    owner: Annotated[str, Query(max_length=200)] = "",
    repository: Annotated[str, Query(max_length=500)] = "",
    user: Annotated[str, Query(max_length=500)] = "",
    since: Annotated[str, Query(max_length=40)] = "",
    until: Annotated[str, Query(max_length=40)] = "",
    before: Annotated[str, Query(max_length=64)] = "",
) -> Wanted:
    return Wanted(state, piece, q, owner, repository, user, since, until, before)


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
    counts: Counts = request.app.state.counts
    values = _rows(installation, principal, wanted, words_for(request), counts)
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
    return page(request, "list_part.html", wanted=wanted, **values)


def _rows(
    installation: Installation, principal: Principal, wanted: Wanted, words: Words, counts: Counts
) -> dict[str, Any]:
    """A page of the list. One that must look for what it shows looks at `LOOKED_AT` jobs, and says where it stopped."""
    db, zone = installation.db, installation.settings.zone()
    before = wanted.before or None
    asked = wanted.filter(principal, zone)
    floor = floor_of(db, asked.owner, before, LOOKED_AT) if asked.is_searched else None
    found = find_jobs(db, asked, PAGE + 1, before=before, floor=floor)
    full = len(found) > PAGE
    counted = counts.of(wanted.owned_by(principal))
    following = wanted.url(before=found[PAGE - 1]["id"]) if full else None
    statuses = [status_of(row, words, installation) for row in found[:PAGE]]
    values = {
        "statuses": statuses,
        "following": following,
        "further": wanted.url(before=floor) if floor and not full else None,
        "looked_at": LOOKED_AT,
        "now": db.clock(),
        "counts": {state: number for state in COUNTED if (number := counted[state])},
    }
    told = [
        (s.job.id, s.job.state, s.why, s.job.steps, s.job.cost, s.job.tokens, s.job.context_tokens)
        for s in statuses
    ]
    mark = hashlib.sha256(repr((told, values["counts"])).encode(errors="replace")).hexdigest()[:16]
    return values | {"mark": mark}


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
