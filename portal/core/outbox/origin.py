"""What a message of the outbox was caused by, carried from the request to the worker that does its effect."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar

TRACEPARENT: ContextVar[str] = ContextVar("traceparent", default="")
"""The span that is open here, as W3C's Trace Context writes it; '' where nothing is traced."""

AROUND: list[Callable[[str, str], AbstractContextManager[object]]] = []
"""Entered around each effect, with the name of its task and its message's `traceparent`."""
