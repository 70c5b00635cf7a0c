"""Which jobs a request means: the list's query, and bulk actions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from jobs.api.problems import Problem
from jobs.api.tokens import Principal
from jobs.bulk import MOST_JOBS, Action, Outcome
from jobs.reasons import Reason
from jobs.states import State
from storage.listing import JobFilter

Text = Annotated[str, Field(max_length=500)]
MOST_ITEMS = 1000


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


class JobFilterBody(BaseModel):
    """What jobs must fit, all of what is given."""

    model_config = ConfigDict(extra="forbid")

    state: list[State] | None = Field(default=None, max_length=20, description="any of these")
    reason: list[Reason] | None = Field(default=None, max_length=50, description="any of these")
    parent: Text | None = Field(default=None, description="only the subtasks of this job")
    piece: Text | None = None
    task_type: Text | None = None
    task_identifier: Text | None = None
    repository: Text | None = None
    user: Text | None = None
    owner: Text | None = Field(default=None, description="for administrators")
    title: Text | None = Field(default=None, description="a part of it, whatever its case")
    created_after: AwareDatetime | None = Field(default=None, description="from this time on")
    created_before: AwareDatetime | None = Field(default=None, description="until before this time")

    def as_filter(self, principal: Principal) -> JobFilter:
        """Within what the principal may see. Raises Problem 403 for another's owner."""
        if self.owner not in (None, principal.owner) and not principal.is_admin:
            raise Problem(403, "ScopeMissing", "other people's jobs need a token with the scope admin")
        return JobFilter(
            owner=self.owner if principal.is_admin else principal.owner,
            states=self.state,
            reasons=self.reason,
            parent=self.parent,
            piece=self.piece,
            task_type=self.task_type,
            task_identifier=self.task_identifier,
            repository=self.repository,
            user=self.user,
            title=self.title,
            created_after=_seconds(self.created_after),
            created_before=_seconds(self.created_before),
        )


class JobQuery(JobFilterBody):
    """The list's query."""

    order: Literal["newest", "oldest"] = "newest"
    before: Text | None = Field(default=None, description="only jobs before this one, by id")
    after: Text | None = Field(default=None, description="only jobs after this one, by id")
    limit: int = Field(default=50, ge=1, le=MOST_ITEMS, description="items on a page")


class BulkBody(BaseModel):
    """One action on many jobs: those of `ids`, or those that fit `filter`."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"action": "pause", "ids": ["019336a0-0000-7000-8000-000000000001"]},
                {"action": "retry", "filter": {"state": ["failed"], "reason": ["rate_limited"]}, "limit": 50},
            ]
        },
    )

    action: Action
    ids: Annotated[list[Text], Field(min_length=1, max_length=MOST_JOBS)] | None = None
    filter: JobFilterBody | None = None
    limit: int = Field(default=MOST_JOBS, ge=1, le=MOST_JOBS, description="of a filter, at most so many")

    @model_validator(mode="after")
    def _one_of_both(self) -> BulkBody:
        if (self.ids is None) == (self.filter is None):
            raise ValueError("give either ids or a filter")
        if self.filter is not None and not self.filter.model_fields_set:
            raise ValueError("an empty filter would mean every job")
        return self


class BulkOutcome(BaseModel):
    """What became of one job: `state` where it was done, else `code` and `detail` as in a problem."""

    id: str
    ok: bool
    state: str | None = None
    code: str | None = None
    detail: str | None = None

    @classmethod
    def of(cls, outcome: Outcome) -> BulkOutcome:
        return cls(
            id=outcome.job_id,
            ok=outcome.code is None,
            state=outcome.state,
            code=outcome.code,
            detail=outcome.detail,
        )


class BulkResult(BaseModel):
    """One result for each job, in order. `more`: others fitted the filter too."""

    results: list[BulkOutcome]
    more: bool
