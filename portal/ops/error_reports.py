"""Unforeseen errors, sent to Sentry or what understands its protocol. Loaded only where SENTRY_DSN is set.

A report has the error with the lines of code that it passed, the request's method, route and id, or the task. It has
no address, since mailed links have their keys in it, no header, cookie, body, person or variable. What the error
itself says goes along: PostgreSQL may quote a row there.
"""

from __future__ import annotations

import sys
from typing import Any, cast

import sentry_sdk
import structlog
from sentry_sdk.integrations.atexit import AtexitIntegration
from sentry_sdk.integrations.celery import CeleryIntegration
from sentry_sdk.integrations.dedupe import DedupeIntegration
from sentry_sdk.integrations.django import DjangoIntegration
from sentry_sdk.integrations.excepthook import ExcepthookIntegration
from sentry_sdk.integrations.logging import LoggingIntegration
from sentry_sdk.types import Event, Hint
from sentry_sdk.utils import event_from_exception

from portal.ops.logs import hidden


def start(dsn: str) -> None:
    sentry_sdk.init(
        dsn=dsn,
        # Others would add headers of Sentry's to what is asked of Stripe and of schedulers.
        default_integrations=False,
        auto_enabling_integrations=False,
        integrations=[
            DjangoIntegration(),
            CeleryIntegration(),
            LoggingIntegration(),
            ExcepthookIntegration(),
            DedupeIntegration(),
            AtexitIntegration(callback=lambda *_: None),
        ],
        before_send=_without_personal_data,
        send_default_pii=False,
        include_local_variables=False,
        max_request_body_size="never",
        max_breadcrumbs=0,  # they would be lines of the log and statements
        server_name="",
    )


REPORTED_FIELDS = (
    "event_id", "timestamp", "level", "logger", "platform", "exception", "logentry", "transaction", "transaction_info",
    "release", "environment", "sdk", "modules",
)  # fmt: skip
IDS = {"request_id", "trace_id", "task", "task_id"}  # as the log's lines have them


def _without_personal_data(event: Event, hint: Hint) -> Event:
    """Only what is named here."""
    report: dict[str, Any] = dict(event)
    line = getattr(hint.get("log_record"), "msg", None)
    if isinstance(line, dict):  # of structlog, whose message is all of its fields
        report["logentry"] = {"message": line["event"]}
        report |= _exception(line.get("exc_info"))
    reported = {name: _without_keys(report[name]) for name in REPORTED_FIELDS if name in report}
    ids = structlog.contextvars.get_contextvars()
    reported["tags"] = {name: str(ids[name]) for name in IDS & set(ids)}
    if "request" in event:
        reported["request"] = {"method": event["request"].get("method")}
    return cast(Event, reported)


def _exception(exc_info: Any) -> dict[str, Any]:
    if exc_info is True:  # the one that is being handled
        exc_info = sys.exc_info()
    if not exc_info:
        return {}
    event, _ = event_from_exception(exc_info, client_options=sentry_sdk.get_client().options)
    return {"exception": event["exception"]}


def _without_keys(value: Any) -> Any:
    if isinstance(value, str):
        return hidden(value)
    if isinstance(value, dict):
        return {name: _without_keys(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_keys(each) for each in value]
    return value
