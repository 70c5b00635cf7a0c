"""Requests made from the OpenAPI document: every answer is one that the document names, and none is a 500.

One check is left out, that every request which fits the schema is accepted: an empty comment, a piece that is not
there, a path outside of input/ and output/ are refused by rules that the schema does not tell.
"""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance

from jobs.api.application import create_api
from tests import factories
from tests.api.conftest import Api
from tests.cli.conftest import cli, folder
from tests.jobs.conftest import db, installation

__all__ = ["cli", "db", "folder", "installation"]

_EXAMPLES = 6
# A stream does not end by itself; the others change who may ask.
_LEFT_OUT = frozenset({("GET", "/api/jobs/{job_id}/events"), ("POST", "/logout")})


@pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)
def test_every_operation_answers_as_its_document_says(api: Api) -> None:
    job_id = factories.make_job(api.db, owner="root")
    schema = schemathesis.openapi.from_dict(create_api(api.installation).openapi())
    headers = {"Authorization": api.client("root", "admin").headers["authorization"]}
    failures: dict[str, Any] = {}
    seen = 0
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        if (operation.method.upper(), operation.path) in _LEFT_OUT:
            continue
        seen += 1

        @given(case=operation.as_strategy())
        @settings(
            max_examples=_EXAMPLES,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def ask(case: Any) -> None:
            if "job_id" in (case.path_parameters or {}):
                case.path_parameters["job_id"] = job_id
            case.call_and_validate(
                base_url=api.url, headers=headers, timeout=30, excluded_checks=[positive_data_acceptance]
            )

        try:
            ask()
        except BaseException as error:  # noqa: BLE001 - all operations are told, not the first that fails
            failures[operation.label] = error
    assert seen > 30
    assert not failures, "\n\n".join(f"{label}: {error}"[:900] for label, error in failures.items())
