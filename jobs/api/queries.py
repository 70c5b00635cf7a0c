"""Which jobs a request means: the list's query, and bulk actions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from jobs.api.problems import Problem
from jobs.api.schemas import AsWhole
from jobs.api.tokens import Principal
from jobs.bulk import MOST_JOBS, Action
from jobs.reasons import Reason
from jobs.states import State
from storage.listing import JobFilter

Text = Annotated[str, Field(max_length=500)]
MOST_ITEMS = 1000
Absent = SkipJsonSchema[None]  # may be left out, and is never null


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


class JobFilterBody(BaseModel):
    """What jobs must fit, all of what is given."""

    model_config = ConfigDict(extra="forbid")

    state: Annotated[list[State], Field(min_length=1, max_length=20)] | Absent = Field(
        default=None, description="any of these"
    )
    reason: Annotated[list[Reason], Field(min_length=1, max_length=50)] | Absent = Field(
        default=None, description="any of these"
    )
    parent: Text | Absent = Field(default=None, description="only the subtasks of this job")
    piece: Text | Absent = None
    task_type: Text | Absent = None
    task_identifier: Text | Absent = None
    repository: Text | Absent = None
    user: Text | Absent = None
    owner: Text | Absent = Field(default=None, description="for administrators")
    title: Text | Absent = Field(default=None, description="a part of it, whatever its case")
    created_after: AwareDatetime | Absent = Field(default=None, description="from this time on")
    created_before: AwareDatetime | Absent = Field(default=None, description="until before this time")

    @field_validator("*", mode="before")
    @classmethod
    def _no_null(cls, value: object) -> object:
        """A null would be left out of the filter, which then means more jobs than its author saw."""
        if value is None:
            raise ValueError("leave it out, or give a value")
        return value

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
    before: Text | Absent = Field(default=None, description="only jobs before this one, by id")
    after: Text | Absent = Field(default=None, description="only jobs after this one, by id")
    limit: int = Field(default=50, ge=1, le=MOST_ITEMS, description="items on a page")


class _BulkBody(BaseModel):
    action: Action


class BulkByIds(_BulkBody):
    """One action on these jobs."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"action": "pause", "ids": ["0193a0c2-5d1e-7c60-9a4b-3f2d1c0b9a87"]}]
        },
    )

    ids: list[Text] = Field(min_length=1, max_length=MOST_JOBS)


class BulkByFilter(_BulkBody):
    """One action on the jobs that fit, the oldest first."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"action": "retry", "filter": {"state": ["failed"], "reason": ["rate_limited"]}, "limit": 50}
            ]
        },
    )

    filter: JobFilterBody = Field(
        json_schema_extra={"minProperties": 1}, description="an empty one would mean every job"
    )
    limit: Annotated[int, Field(ge=1, le=MOST_JOBS, strict=True), AsWhole] = Field(
        default=MOST_JOBS, description="at most so many"
    )

    @model_validator(mode="after")
    def _means_something(self) -> BulkByFilter:
        if not self.filter.model_fields_set:
            raise ValueError("an empty filter would mean every job")
        return self


BulkBody = BulkByIds | BulkByFilter
