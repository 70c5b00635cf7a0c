"""Traces by OpenTelemetry, from the API over Celery to models and tools. Off unless `traces_endpoint` is set: then, and only
then, its packages are imported. Attributes are names, ids and counts: never what is said, never a secret.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from jobs.errors import ConfigurationError

if TYPE_CHECKING:
    from fastapi import FastAPI
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

    from jobs.settings import Settings

TRACE = "traceparent"  # of a job's first event's data
_UNTRACED = "healthz,readyz,metrics"


class _Tracing:
    """What a process that traces has; nothing of it where it does not."""

    provider: TracerProvider | None = None
    tracer: Tracer | None = None


def start_tracing(settings: Settings, service: str) -> None:
    """Begins to trace this process where the settings say so. Raises ConfigurationError without the extra `traces`."""
    if settings.traces_endpoint is None:
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.instrumentation.celery import CeleryInstrumentor
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigurationError(
            f"traces need OpenTelemetry ({error.name} is missing)", hint="pip install 'sostenuto[traces]'"
        ) from None
    provider = TracerProvider(resource=Resource.create({"service.name": service}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=settings.traces_endpoint)))
    _Tracing.provider, _Tracing.tracer = provider, provider.get_tracer("sostenuto")
    CeleryInstrumentor().instrument(tracer_provider=provider)  # type: ignore[no-untyped-call]  # it ships none


def stop_tracing() -> None:
    """Sends what is left, for some seconds at most, and traces no more."""
    provider, _Tracing.provider, _Tracing.tracer = _Tracing.provider, None, None
    if provider is not None:
        from opentelemetry.instrumentation.celery import CeleryInstrumentor

        CeleryInstrumentor().uninstrument()  # type: ignore[no-untyped-call]  # as above
        provider.force_flush(5000)
        provider.shutdown()


def trace_requests(api: FastAPI) -> None:
    """Traces the requests to an application."""
    if _Tracing.provider is not None:
        from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor

        FastAPIInstrumentor.instrument_app(
            api, tracer_provider=_Tracing.provider, excluded_urls=_UNTRACED, exclude_spans=["receive", "send"]
        )


@contextmanager
def span(name: str, attributes: Mapping[str, Any], parent: str | None = None) -> Iterator[Span | None]:
    """A span around the block; None where nothing is traced. Attributes that are None are left out.

    `parent` is a traceparent: the span then belongs to that trace, and has a link to what is going on here.
    """
    if _Tracing.tracer is None:
        yield None
        return
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    here = trace.get_current_span().get_span_context()
    told = {key: value for key, value in attributes.items() if value is not None}
    context = None if parent is None else TraceContextTextMapPropagator().extract({"traceparent": parent})
    links = [trace.Link(here)] if parent is not None and here.is_valid else []
    with _Tracing.tracer.start_as_current_span(
        name, context, attributes=told, links=links, record_exception=False, set_status_on_exception=False
    ) as begun:
        try:
            yield begun
        except Exception as error:  # its type alone: its words may be anybody's
            begun.set_attribute("error.type", type(error).__name__)
            begun.set_status(trace.StatusCode.ERROR)
            raise


def tell(begun: Span | None, attributes: Mapping[str, Any]) -> None:
    """Adds attributes, those that are None left out."""
    if begun is not None:
        begun.set_attributes({name: value for name, value in attributes.items() if value is not None})


def traceparent() -> str | None:
    """What is going on here, to be kept with a job that may go on elsewhere, days later."""
    if _Tracing.tracer is None:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent")


def context_here() -> Any:
    """What is going on in this thread, for another one to be `within`; None where nothing is traced."""
    if _Tracing.tracer is None:
        return None
    from opentelemetry import context

    return context.get_current()


def within(context_there: Any) -> AbstractContextManager[None]:
    """The block belongs to what was going on there."""
    return nullcontext() if context_there is None else _attached(context_there)


@contextmanager
def _attached(context_there: Any) -> Iterator[None]:
    from opentelemetry import context

    token = context.attach(context_there)
    with contextlib.ExitStack() as stack:
        stack.callback(context.detach, token)
        yield
