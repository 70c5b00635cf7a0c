"""Traces: one from an API's submit over Celery to the run, its models and tools; nothing at all where they are off."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from jobs.api.tokens import Scope, create_token
from jobs.tracing import start_tracing, stop_tracing
from tests.api.conftest import Api, serving, submitted
from tests.resilience.bench import COMPLETE, Bench, bash, story
from tests.resilience.conftest import sqlite_bench
from tests.waiting import wait_until

__all__ = ["sqlite_bench"]

SECRET = "what-was-said-to-nobody"


def _told(span: Span) -> dict[str, Any]:
    return {
        "name": span.name,
        "trace": span.trace_id.hex(),
        "id": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "links": [link.trace_id.hex() for link in span.links],
        "text": str(span),
        "attributes": {given.key: given.value for given in span.attributes},
    }


@contextmanager
def collector() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A real OTLP/HTTP endpoint; its address, and every span that it was sent."""
    spans: list[dict[str, Any]] = []

    class Collect(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    spans.extend(map(_told, scope.spans))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collect)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/traces", spans
    server.shutdown()
    thread.join()
    server.server_close()


def test_one_trace_from_a_submit_to_a_tool(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.write_pieces()
    bench.endpoint.mind = story(bash(f"echo {SECRET}"), COMPLETE)
    with collector() as (address, spans):
        bench.installation.settings = bench.installation.settings.model_copy(
            update={"traces_endpoint": address}
        )
        start_tracing(bench.installation.settings, "test-web")
        job: dict[str, Any] = {}
        try:
            worker = bench.start(SOSTENUTO_TRACES_ENDPOINT=address)
            for url in serving(bench.installation):
                token, _ = create_token(bench.installation.db, "local", list(Scope), None)
                api = Api(bench.installation, url)
                job = submitted(api.bearer(token), f"Do it: {SECRET}", piece="plain")
                api.close()
                assert bench.wait_ended(job["id"]).state == "succeeded"
        finally:
            stop_tracing()
        worker.term()
        worker.wait(60)
        wait_until(lambda: any(s["name"].startswith("invoke_agent") for s in spans), 30, "the worker's spans")
    by_name = {span["name"]: span for span in spans}
    run = by_name["invoke_agent plain"]
    request = by_name["POST /api/jobs"]
    assert {span["trace"] for span in spans} == {request["trace"]}
    assert run["parent"] in {span["id"] for span in spans if span["name"].startswith("POST")}
    assert run["links"] == [run["trace"]]  # the wake-up that it answered
    assert {"apply_async/sostenuto.agent", "run/sostenuto.agent"} <= by_name.keys()
    chats = [span for span in spans if span["name"].startswith("chat ")]
    tools = [span for span in spans if span["name"] == "execute_tool Bash"]
    assert (len(chats), len(tools)) == (2, 1)
    assert {span["parent"] for span in [*chats, *tools]} == {run["id"]}
    assert run["attributes"]["sostenuto.job.id"].string_value == job["id"]
    assert chats[0]["attributes"]["gen_ai.usage.input_tokens"].int_value > 0
    assert not [span["name"] for span in spans if SECRET in span["text"]]


def test_nothing_of_it_is_imported_where_it_is_off() -> None:
    # The bare API is a part of the MCP package; what costs something is the rest.
    code = (
        "import sys, jobs.cli, jobs.api.server, jobs.submit, worker.__main__\n"
        "heavy = tuple(f'opentelemetry.{part}' for part in ('sdk', 'exporter', 'instrumentation', 'proto'))\n"
        "print([name for name in sys.modules if name.startswith(heavy)])"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert told.stdout.strip() == "[]"
