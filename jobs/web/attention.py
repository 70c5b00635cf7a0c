"""What waits for a person, asked by every page: for the mark in its header, and for the browser's notifications."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import JSONResponse

from jobs.api.routing import Installed, JobsReader
from jobs.reasons import Reason
from jobs.states import State
from jobs.web.counts import Counts
from jobs.web.pages import PageRoute
from jobs.web.panels import status_of
from jobs.web.safe_text import clipped, neutral
from jobs.web.words import Words, words_for
from storage.listing import JobFilter, find_jobs

router = APIRouter(route_class=PageRoute)
WAITING = (State.WAITING_HUMAN, State.PAUSED)
TOLD = (Reason.QUESTION, Reason.BUDGET_EXCEEDED)  # nobody is told of the pause that they asked for
MOST_TOLD = 50


@router.get("/attention")
def attention(
    request: Request,
    installation: Installed,
    principal: JobsReader,
    seen: Annotated[str, Query(max_length=64)] = "",
) -> Response:
    """How many of the asker's own jobs wait for a person, and what the newest ask; 204 if that is what has this mark.

    A job that waits again has another `key`.
    """
    words = words_for(request)
    counts: Counts = request.app.state.counts
    counted = counts.of(principal.owner)
    wanted = JobFilter(principal.owner, WAITING, reasons=TOLD)
    found = find_jobs(installation.db, wanted, MOST_TOLD)
    answer: dict[str, Any] = {
        "count": sum(counted[state] for state in WAITING),
        "jobs": [_told(row, status_of(row, words, installation).why, words) for row in found],
    }
    mark = hashlib.sha256(json.dumps(answer).encode()).hexdigest()[:16]
    return Response(status_code=204) if mark == seen else JSONResponse(answer | {"mark": mark})


def _told(row: dict[str, Any], why: str, words: Words) -> dict[str, str]:
    question = (row["pending_question"] or {}).get("question")
    return {
        "id": row["id"],
        "key": f"{row['id']}-{row['total_messages']}",
        "title": words("notify.title", title=neutral(clipped(row["title"], 120))),
        "text": neutral(clipped(question or why, 300)),
    }
