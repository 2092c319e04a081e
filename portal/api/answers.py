"""Answers in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from django.http import HttpResponse


def as_json(data: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> HttpResponse:
    """Compact, and in UTF-8."""
    text = msgspec.json.encode(data, enc_hook=_text)
    return HttpResponse(text, status=status, content_type="application/json", headers=dict(headers or {}))


def _text(value: Any) -> str:
    """Of a kind of text of its own, such as the name of a declared meter."""
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON.")
