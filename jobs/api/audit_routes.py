"""Tokens and the audit log, for administrators."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from jobs import audit, views
from jobs.api import tokens
from jobs.api.problems import Problem
from jobs.api.record_routes import CALL_CURSOR
from jobs.api.resources import AuditedCall, AuditRecord, NewToken, Page, Token
from jobs.api.routing import HIGHEST, Administrator, Installed, Limit, TaggedRoute, answer, page, whole
from jobs.api.schemas import TokenBody
from jobs.api.tokens import create_token, token_dict
from storage import accounts, observing
from storage.audit import list_records

router = APIRouter(prefix="/api", tags=["administration"], route_class=TaggedRoute)
Id = Annotated[str, Query(max_length=100)]


@router.get("/tokens", response_model=Page[Token])
def list_tokens(installation: Installed, _: Administrator) -> Response:
    """Every token without its secret, the revoked and expired ones too."""
    return whole([token_dict(row) for row in accounts.list_tokens(installation.db)])


@router.post("/tokens", status_code=201, response_model=NewToken)
def make_token(body: TokenBody, installation: Installed, principal: Administrator) -> Response:
    """Make a token. The answer holds it, once: only its hash is stored. `expires_in` null: until it is revoked."""
    given = principal.owner if body.owner is None else body.owner
    scopes = list(tokens.DEFAULT_SCOPES) if body.scopes is None else body.scopes
    if not principal.may_grant(scopes):
        raise Problem(403, "ScopeMissing", "a token cannot grant more than it has")
    token, row = create_token(installation.db, given, scopes, body.expires_in, principal.owner)
    return answer({"token": token, **token_dict(row)}, 201)


@router.delete("/tokens/{token_id}", status_code=204, response_class=Response)
def revoke_token(token_id: str, installation: Installed, principal: Administrator) -> Response:
    """Revoke a token at once: no later request with it is answered, and its streams end within a second."""
    tokens.revoke(installation.db, token_id, principal.owner)
    return Response(status_code=204)


@router.get("/audit", response_model=Page[AuditRecord])
def list_audit_records(  # noqa: PLR0917  FastAPI passes them by name
    request: Request,
    installation: Installed,
    _: Administrator,
    kind: Annotated[str | None, Query(max_length=100, description="only these records")] = None,
    actor: Annotated[str | None, Query(max_length=200, description="only what this one did")] = None,
    job_id: Annotated[str | None, Query(max_length=100, description="only what concerns this job")] = None,
    before: Annotated[int | None, Query(ge=1, le=HIGHEST, description="only records before this one")] = None,
    limit: Limit = 100,
) -> Response:
    """Who did what, newest first."""
    found = list_records(installation.db, limit + 1, before, kind=kind, actor=actor, job_id=job_id)
    return page(request, found, limit, audit.record_dict, before=lambda row: row.id)


@router.get("/audit/tool-calls", response_model=Page[AuditedCall])
def list_audited_calls(
    request: Request,
    installation: Installed,
    _: Administrator,
    job_id: Annotated[str, Query(max_length=100, description="the calls of this job")],
    after: Annotated[str, Query(pattern=CALL_CURSOR, description="MESSAGE.POSITION")] = "0.0",
    limit: Limit = 100,
) -> Response:
    """A job's tool calls by name, hash and outcome. They are kept as long as the job is."""
    job = views.get_job(installation, job_id, None)
    seq, position = (int(part) for part in after.split("."))
    found = observing.list_tool_calls(installation.db, job.id, (seq, position), limit + 1)
    return page(
        request, found, limit, audit.call_record, after=lambda call: f"{call.message_seq}.{call.position}"
    )
