"""The OpenAPI document against the server: requests are made from it, good ones and bad ones, and all checks are on.

Every answer is one that the document names; what fits the document is taken, what does not is refused; nothing is
answered without credentials; none is a 500.
"""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.result import Ok

from jobs.api.application import create_api
from tests import factories
from tests.api.conftest import Api, submitted
from tests.api.test_document import OPERATIONS
from tests.cli.conftest import cli, folder
from tests.jobs.conftest import db, installation

__all__ = ["cli", "db", "folder", "installation"]

_EXAMPLES = 6
_STREAM = ("GET", "/api/jobs/{job_id}/events")
_CONTEXT = "/api/jobs/{job_id}/context"  # starts a process each time


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["good", "bad"])
@pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)
def test_every_operation_answers_as_its_document_says(api: Api, mode: GenerationMode) -> None:
    client = api.client("root", "admin")
    job_id = submitted(client)["id"]
    ended = factories.make_job(api.db, "succeeded", owner="root")  # the stream of one that goes on has no end
    token = {"Authorization": client.headers["authorization"]}
    schema = schemathesis.openapi.from_dict(create_api(api.installation).openapi())
    failures: dict[str, Any] = {}
    asked = set()
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=_EXAMPLES if operation.path != _CONTEXT else 1,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def ask(case: Any) -> None:
            key = (case.method.upper(), case.operation.path)
            if "job_id" in (case.path_parameters or {}):
                case.path_parameters["job_id"] = ended if key == _STREAM else job_id
            case.call_and_validate(base_url=api.url, headers=token, timeout=30)
            asked.add(key)

        try:
            ask()
        except Unsatisfiable:
            assert mode is GenerationMode.NEGATIVE  # nothing can be wrong in a request of nothing
            assert operation.label == "GET /healthz"
        except BaseException as error:  # noqa: BLE001 - all operations are told, not the first that fails
            failures[operation.label] = error
    assert not failures, "\n\n".join(f"{label}: {error}"[:900] for label, error in failures.items())
    if mode is GenerationMode.POSITIVE:
        assert len(asked) == len(OPERATIONS)
