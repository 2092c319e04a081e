"""What a message of the outbox was caused by, carried from the request to the worker that does its effect."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar

TRACEPARENT: ContextVar[str] = ContextVar("traceparent", default="")
"""The span that is open here, as W3C's Trace Context writes it; '' where nothing is traced."""


def _no_span(_task: str, _traceparent: str) -> AbstractContextManager[object]:
    return nullcontext()


effect_span: Callable[[str, str], AbstractContextManager[object]] = _no_span
"""Goes around each effect, by the name of its task and its message's `traceparent`; tracing puts its own here."""
