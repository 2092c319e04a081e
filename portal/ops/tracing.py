"""Traces for OpenTelemetry: a request, the effects that it leaves in the outbox and all statements of both are one.

Loaded only where OTEL_EXPORTER_OTLP_ENDPOINT is set, and configured by OpenTelemetry's own variables. The spans are
made here, by hooks that Django and Celery document, and not by OpenTelemetry's libraries for them: those write whole
addresses, in which mailed links have their keys, and messages of errors, in which PostgreSQL quotes rows. A span has
names, numbers and the text of a statement with its placeholders; what people wrote is in none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import structlog
from celery import Task, signals
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.http import HttpRequest, HttpResponse
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode

from portal.core.outbox import origin

PARENT = "traceparent"  # W3C Trace Context's header; Celery's messages carry it, too
TRACER = trace.get_tracer("clustertab")
NAMES = Resource({"service.name": "clustertab"})


def start() -> None:
    """Send this process's spans from now on, from a thread of its own; a forked process begins one of its own."""
    provider = TracerProvider(resource=NAMES.merge(OTELResourceDetector().detect()))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    connection_created.connect(_trace_statements, dispatch_uid=__name__)
    signals.before_task_publish.connect(_send_parent, weak=False, dispatch_uid=__name__)
    signals.task_prerun.connect(_begin_task, weak=False, dispatch_uid=__name__)
    signals.task_postrun.connect(_end_task, weak=False, dispatch_uid=__name__)
    origin.effect_span = lambda task, parent: _span(task, SpanKind.CONSUMER, {PARENT: parent})


class RequestSpan:
    """Middleware: the outermost, so that the request's line in the log has the trace's id."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with _span(request.method or "", SpanKind.SERVER, {}) as span:
            # A link alone: else strangers would choose what is sampled, and whose trace the log names.
            span.add_link(trace.get_current_span(propagate.extract(request.headers)).get_span_context())
            response = self.get_response(request)
            route = request.resolver_match.route if request.resolver_match else ""
            span.update_name(f"{request.method} /{route}")
            span.set_attributes(
                {
                    "http.request.method": request.method or "",
                    "http.route": f"/{route}",
                    "http.response.status_code": response.status_code,
                }
            )
            if response.status_code >= 500:
                span.set_status(StatusCode.ERROR)
            return response


@contextmanager
def _span(name: str, kind: SpanKind, carrier: Mapping[str, str]) -> Iterator[Span]:
    """A span below the one that the carrier names; what is logged and put into the outbox meanwhile says so."""
    with ExitStack() as stack:
        span = stack.enter_context(
            _quiet(name, kind, propagate.extract(carrier) if carrier.get(PARENT) else None)
        )
        headers: dict[str, str] = {}
        propagate.inject(headers)
        outer = origin.TRACEPARENT.set(headers.get(PARENT, ""))
        stack.callback(origin.TRACEPARENT.reset, outer)
        trace_id = trace.format_trace_id(span.get_span_context().trace_id)
        stack.enter_context(structlog.contextvars.bound_contextvars(trace_id=trace_id))
        yield span


@contextmanager
def _quiet(
    name: str, kind: SpanKind, parent: Context | None = None, attributes: dict[str, str] | None = None
) -> Iterator[Span]:
    """Of an error the kind alone is written, since its message may quote a row."""
    with TRACER.start_as_current_span(
        name,
        parent,
        kind=kind,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except Exception as error:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(StatusCode.ERROR)
            raise


def _trace_statements(connection: BaseDatabaseWrapper, **_: object) -> None:
    """The outermost of what stands around each statement, once, however often it is connected anew."""
    if _trace_statement not in connection.execute_wrappers:
        connection.execute_wrappers.insert(0, _trace_statement)


def _trace_statement(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
    """What belongs to no request and no task is not traced."""
    if not trace.get_current_span().is_recording():
        return execute(sql, params, many, context)
    text = sql if isinstance(sql, str) else sql.as_string()
    attributes = {"db.system.name": "postgresql", "db.query.text": text}
    with _quiet(text.lstrip().partition(" ")[0].upper(), SpanKind.CLIENT, attributes=attributes):
        return execute(sql, params, many, context)


def _send_parent(headers: dict[str, Any] | None = None, **_: object) -> None:
    if headers is not None:
        propagate.inject(headers)


def _begin_task(task: Task[Any, Any], **_: object) -> None:
    stack = ExitStack()
    carrier = {PARENT: getattr(task.request, PARENT, None) or ""}
    stack.enter_context(_span(task.name, SpanKind.CONSUMER, carrier))
    task.request.span = stack  # type: ignore[attr-defined]  # a place for what belongs to one run


def _end_task(task: Task[Any, Any], state: str | None = None, **_: object) -> None:
    if state == "FAILURE":
        trace.get_current_span().set_status(StatusCode.ERROR)
    task.request.span.close()  # type: ignore[attr-defined]
