"""The OpenAPI document: what all operations have in common."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel

from jobs.api import resources
from jobs.api.problems import MEDIA_TYPE
from jobs.api.resources import ProblemDocument
from jobs.api.schemas import JobBody

ABOUT = """\
Durable LLM agent jobs. Every request but `GET /healthz` needs `Authorization: Bearer sos_…`, or the cookie
of a session; errors are `application/problem+json`; lists are pages whose `next` is the URL of the following one.
"""
_REFERENCE = "#/components/schemas/{model}"
_UNSEEN = (
    ProblemDocument,
    JobBody,
)  # models of what routes do not declare: they read and answer it themselves


def reference(model: type[BaseModel]) -> dict[str, str]:
    """Where the document has a model's schema."""
    return {"$ref": _REFERENCE.format(model=model.__name__)}


_PROBLEM: dict[str, Any] = {
    "description": "a problem",
    "content": {MEDIA_TYPE: {"schema": reference(ProblemDocument)}},
}
PROBLEMS: dict[int | str, dict[str, Any]] = {"4XX": _PROBLEM, "5XX": _PROBLEM}


def operation_id(route: APIRoute) -> str:
    """The name of the route's function. Generated clients are named by it: a test holds it still."""
    return route.name


def complete(api: FastAPI) -> None:
    """Gives the document the models that the framework does not see."""
    made = api.openapi

    def openapi() -> dict[str, Any]:
        document = made()
        models = document["components"]["schemas"]
        for name, schema in models.items():
            if "examples" in schema and hasattr(resources, name):  # the framework drops what is null in them
                schema["examples"] = getattr(resources, name).model_json_schema()["examples"]
        for model in _UNSEEN:
            schema = model.model_json_schema(ref_template=_REFERENCE)
            models.update(schema.pop("$defs", {}))
            models[model.__name__] = schema
        return document

    api.openapi = openapi  # type: ignore[method-assign]  # the way that the framework documents
