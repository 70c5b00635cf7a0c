"""The OpenAPI document itself: names that stay, references that lead somewhere, examples that are true."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from jobs.api.application import create_api
from jobs.installation import Installation
from tests.cli.conftest import cli, folder
from tests.jobs.conftest import db, installation

__all__ = ["cli", "db", "folder", "installation"]
OPERATIONS = {
    "GET /healthz": "get_health",
    "GET /readyz": "get_readiness",
    "GET /metrics": "get_metrics",
    "POST /login": "login",
    "POST /logout": "logout",
    "POST /api/jobs": "submit_job",
    "GET /api/jobs": "list_jobs",
    "POST /api/jobs/bulk": "act_on_jobs",
    "GET /api/jobs/{job_id}": "get_job",
    "POST /api/jobs/{job_id}/comments": "add_comment",
    "POST /api/jobs/{job_id}/reply": "reply_to_job",
    "POST /api/jobs/{job_id}/pause": "pause_job",
    "POST /api/jobs/{job_id}/resume": "resume_job",
    "POST /api/jobs/{job_id}/cancel": "cancel_job",
    "POST /api/jobs/{job_id}/retry": "retry_job",
    "GET /api/jobs/{job_id}/history": "list_history",
    "GET /api/jobs/{job_id}/messages": "list_messages",
    "GET /api/jobs/{job_id}/comments": "list_comments",
    "GET /api/jobs/{job_id}/tool-calls": "list_tool_calls",
    "GET /api/jobs/{job_id}/exchanges": "list_job_exchanges",
    "GET /api/jobs/{job_id}/exchanges/{seq}": "get_exchange",
    "GET /api/jobs/{job_id}/todos": "list_todos",
    "GET /api/jobs/{job_id}/checklists": "list_checklists",
    "GET /api/jobs/{job_id}/plans": "list_plans",
    "GET /api/jobs/{job_id}/lessons": "list_lessons",
    "GET /api/jobs/{job_id}/summaries": "list_summaries",
    "GET /api/jobs/{job_id}/children": "list_children",
    "GET /api/jobs/{job_id}/context": "get_context",
    "GET /api/jobs/{job_id}/events": "stream_events",
    "GET /api/jobs/{job_id}/files": "list_files",
    "GET /api/jobs/{job_id}/files/{path}": "get_file",
    "PUT /api/jobs/{job_id}/files/{path}": "put_file",
    "GET /api/jobs/{job_id}/workspace.zip": "get_workspace",
    "GET /api/pieces": "list_pieces",
    "GET /api/workers": "list_workers",
    "GET /api/queues": "list_queues",
    "GET /api/cooldowns": "list_cooldowns",
    "GET /api/tokens": "list_tokens",
    "POST /api/tokens": "make_token",
    "DELETE /api/tokens/{token_id}": "revoke_token",
    "GET /api/audit": "list_audit_records",
    "GET /api/audit/tool-calls": "list_audited_calls",
}
Document = dict[str, Any]


@pytest.fixture
def document(installation: Installation) -> Document:
    return create_api(installation).openapi()


def _operations(document: Document) -> Iterator[tuple[str, Document]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def _media(document: Document) -> Iterator[tuple[str, Document]]:
    """Every body and every good answer, with what it belongs to."""
    for label, operation in _operations(document):
        for kind, media in operation.get("requestBody", {}).get("content", {}).items():
            yield f"{label} takes {kind}", media
        for status, response in operation["responses"].items():
            for kind, media in response.get("content", {}).items():
                if status.startswith("2"):
                    yield f"{label} gives {kind}", media


def _examples(document: Document, media: Document) -> list[Any]:
    """The examples of a body: its own, or those of its model; of a list, or one of several, its parts'."""
    if "example" in media:
        return [media["example"]]
    schema = media.get("schema", {})
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "examples" in schema:
        return list(schema["examples"])
    if "items" in schema.get("properties", {}):
        items = _examples(document, {"schema": schema["properties"]["items"]["items"]})
        return [{"items": items, "next": None, "total": len(items), "complete": True}]
    return [shown for part in schema.get("anyOf", []) for shown in _examples(document, {"schema": part})]


def test_operations_are_named_and_their_names_stay(document: Document) -> None:
    """Clients are generated from these names: one that changes breaks them."""
    assert {label: operation["operationId"] for label, operation in _operations(document)} == OPERATIONS


def test_every_reference_leads_somewhere(document: Document) -> None:
    models = document["components"]["schemas"]

    def references(part: Any) -> Iterator[str]:
        if isinstance(part, dict):
            if isinstance(part.get("$ref"), str):
                yield part["$ref"]
            for value in part.values():
                yield from references(value)
        elif isinstance(part, list):
            for value in part:
                yield from references(value)

    found = set(references(document))
    assert len(found) > 20
    assert {name for name in found if name.removeprefix("#/components/schemas/") not in models} == set()


def test_examples_are_given_and_fit(document: Document) -> None:
    """Of every JSON body that is taken or given, the optional ones too."""
    checked = 0
    for label, media in _media(document):
        if not label.endswith("json"):
            continue
        shown = _examples(document, media)
        assert shown, label
        whole = media["schema"] | {"components": document["components"]}
        validator = jsonschema_rs.validator_for(whole)
        for example in shown:
            assert list(validator.iter_errors(example)) == [], label
            checked += 1
    assert checked > 40


def test_what_is_read_as_json_can_be_asked_for_conditionally(document: Document) -> None:
    for label, operation in _operations(document):
        if not label.startswith("GET /api/") or label.endswith(("/events", "/workspace.zip")):
            continue
        assert "304" in operation["responses"], label
        names = [parameter["name"].lower() for parameter in operation["parameters"]]
        assert names.count("if-none-match") == 1, label
