"""Examples of what is told, for the OpenAPI document; a test holds them against it."""

from __future__ import annotations

from typing import Any

Example = dict[str, Any]

_ID = "0193a0c2-5d1e-7c60-9a4b-3f2d1c0b9a87"
_AT = "2026-11-30T08:00:00.000Z"
_LATER = "2026-11-30T08:00:07.250Z"

JOB: Example = {
    "id": _ID,
    "title": "Summarise input/report.pdf",
    "state": "queued",
    "reason": "new",
    "reason_text": "waiting for a worker",
    "next_action": "a worker takes it as soon as one is free",
    "piece": "general",
    "movement": "work",
    "steps": 0,
    "tokens": 0,
    "cost": 0.0,
    "cost_known": True,
    "attempt": 0,
    "priority": 0,
    "worker": None,
    "model": None,
    "result": None,
    "error": None,
    "pending_question": None,
    "budget": {"max_steps": 200, "max_tokens": None, "max_cost": None, "max_seconds": None},
    "task_type": "local",
    "task_identifier": None,
    "repository": None,
    "user": None,
    "metadata": None,
    "owner": "local",
    "parent_id": None,
    "inherits_from": None,
    "summary_state": "none",
    "children_open": 0,
    "children_total": 0,
    "unread_comments": 0,
    "total_messages": 0,
    "total_summaries": 0,
    "total_tool_calls": 0,
    "context_tokens": 5_210,
    "final_token_count": None,
    "final_message_count": None,
    "available_at": _AT,
    "created_at": _AT,
    "updated_at": _AT,
    "started_at": None,
    "completed_at": None,
    "links": {"self": f"/api/jobs/{_ID}", "cancel": f"/api/jobs/{_ID}/cancel"},
}
COMMENT: Example = {
    "job_id": _ID,
    "number": 1,
    "kind": "comment",
    "author": "local",
    "text": "Use the second table.",
    "created_at": _AT,
    "answers_call": None,
    "seen_seq": 7,
    "seen_step": 3,
}
MESSAGE: Example = {
    "seq": 3,
    "visit": 1,
    "role": "assistant",
    "kind": "assistant",
    "content": "I read the report first.",
    "tool_calls": [{"id": "c1", "name": "Read", "arguments": '{"path": "input/report.pdf"}', "raw_id": None}],
    "tool_call_id": None,
    "tool_name": None,
    "is_error": False,
    "tokens": 31,
    "created_at": _AT,
    "summarised_by": None,
}
EVENT: Example = {
    "job_id": _ID,
    "seq": 2,
    "kind": "claim",
    "at": _AT,
    "actor": "worker-1",
    "from_state": "queued",
    "to_state": "running",
    "run_id": "0193a0c2-6000-7000-8000-000000000001",
    "data": None,
}
CALL: Example = {
    "message_seq": 3,
    "position": 0,
    "call_id": "c1",
    "name": "Read",
    "arguments": '{"path": "input/report.pdf"}',
    "state": "done",
    "is_error": False,
    "result_seq": 4,
    "started_at": _AT,
    "ended_at": _LATER,
}
EXCHANGE: Example = {
    "seq": 1,
    "at": _AT,
    "step": 1,
    "label": "agent",
    "model": "some-model",
    "endpoint": "https://model.example/v1",
    "status": 200,
    "outcome": "reply",
    "error": None,
    "seconds": 7.25,
    "usage": {"prompt_tokens": 900, "completion_tokens": 31},
    "request": {"messages": [{"role": "system", "content": "You are …"}]},
    "incomplete": False,
}
SUMMARY: Example = {
    "number": 1,
    "kind": "final",
    "content": "The report was summarised into output/summary.md.",
    "first_seq": 1,
    "last_seq": 12,
    "created_at": _LATER,
}
CONTEXT: Example = {
    "job": _ID,
    "movement": "work",
    "visit": 1,
    "unread_comments": 0,
    "messages": [{"message": {"role": "system", "content": "You are …"}, "tokens": 120}],
    "tools": [],
    "tools_tokens": 0,
    "tokens": 120,
}
FILE: Example = {
    "path": "output/summary.md",
    "kind": "file",
    "size": 1732,
    "modified": _LATER,
    "url": f"/api/jobs/{_ID}/files/output/summary.md",
}
PIECE: Example = {"name": "general", "origin": "built-in", "description": "Any task", "valid": True}
WORKER: Example = {
    "name": "host:4711",
    "state": "running",
    "queues": ["agent"],
    "concurrency": 50,
    "version": "0.1.0",
    "sandbox": "bwrap",
    "started_at": _AT,
    "seen_at": _LATER,
    "busy": 1,
    "runs": [{"job_id": _ID, "kind": "agent", "claimed_at": _AT, "lease_expires_at": _LATER}],
}
QUEUE: Example = {"kind": "agent", "due": 3, "oldest_seconds": 12.5, "later": 1}
COOLDOWN: Example = {"endpoint": "https://models.example/v1 large", "until": _LATER, "reason": "429"}
TOKEN: Example = {
    "id": "5f1c0a9be2",
    "owner": "ann",
    "scopes": ["jobs:read"],
    "created_at": _AT,
    "expires_at": "2026-12-30T08:00:00.000Z",
    "revoked_at": None,
}
AUDIT_RECORD: Example = {
    "id": 9,
    "at": _AT,
    "kind": "submit",
    "actor": "ann",
    "via": "api",
    "credential": "5f1c0a9be2",
    "address": "127.0.0.1",
    "job_id": _ID,
    "data": {"piece": "general", "files": 1},
}
BULK_RESULT: Example = {
    "results": [
        {"id": _ID, "ok": True, "state": "paused", "code": None, "detail": None},
        {
            "id": "gone",
            "ok": False,
            "state": None,
            "code": "JobNotFound",
            "detail": "there is no job gone",
        },
    ],
    "more": False,
}
