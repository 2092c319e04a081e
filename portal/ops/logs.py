"""JSON logs, one object a line on standard error, each with the request or task that caused it."""

from __future__ import annotations

import linecache
import logging
import re
import sys
import time
import uuid
from collections.abc import Callable

import structlog
from django.http import HttpRequest, HttpResponse
from structlog.typing import EventDict, Processor, WrappedLogger

from portal.ops.request_counts import COUNTS

# A proxy's id is taken over if it is one; anything else could forge lines of the log.
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
# Whoever reads it may set somebody's password, or accept what somebody else was invited to.
LINK_KEY = re.compile(r"(/password/reset/key/|/confirm-email/|/invitations/|/pay/)[^\s?#'\"]+")
API_KEY = re.compile(r"(ct_live_[0-9A-Za-z]{8})[0-9A-Za-z]+")  # its public part is shown on pages


def discreet(_: object, __: str, event: EventDict) -> EventDict:
    """No request, since its text ends with the query, which is people's own; no key of a mailed link or of the API."""
    fields = {name: value for name, value in event.items() if name != "request"}
    return {name: hidden(value) if isinstance(value, str) else value for name, value in fields.items()}


def with_traceback(log: WrappedLogger, name: str, event: EventDict) -> EventDict:
    """The traceback as text. Of the files that it names Python keeps the source for ever, which is let go of here."""
    event = structlog.processors.format_exc_info(log, name, event)
    if "exception" in event:
        linecache.clearcache()
    return event


def hidden(text: str) -> str:
    return API_KEY.sub(r"\1…", LINK_KEY.sub(r"\1…", text))


def configure(*, level: str) -> None:
    """Bring structlog and the standard library's logging to one format. Safe to call again."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                with_traceback,
                discreet,
                structlog.processors.JSONRenderer(default=str),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler, *(other for other in root.handlers if type(other) is not type(handler))]
    root.setLevel(level)
    # At DEBUG Stripe's library would write whole answers, with what lets their reader confirm a payment, and Amazon's
    # the session of its requests.
    for chatty in (
        "httpx",
        "httpcore",
        "asyncio",
        "celery.redirected",
        "kombu",
        "amqp",
        "stripe",
        "botocore",
    ):
        logging.getLogger(chatty).setLevel("WARNING")
    logging.getLogger("django.server").propagate = True


class RequestLog:
    """Gives every request an id, in its answer and its log lines, and logs and counts how it ended."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self.log = structlog.get_logger("portal.request")

    def __call__(self, request: HttpRequest) -> HttpResponse:
        header = request.headers.get("X-Request-ID", "")
        request_id = header if REQUEST_ID.fullmatch(header) else uuid.uuid4().hex
        began = time.perf_counter()
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            response = self.get_response(request)
            # The path without its query: what people search for is theirs.
            self.log.info(
                "request",
                method=request.method,
                path=request.path,
                status=response.status_code,
                ms=round((time.perf_counter() - began) * 1000),
            )
        COUNTS.add(request.path, response.status_code)
        response.headers["X-Request-ID"] = request_id
        return response
