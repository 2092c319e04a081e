"""Answers in JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.http import HttpResponse


def as_json(data: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> HttpResponse:
    """Compact, and in UTF-8."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return HttpResponse(text, status=status, content_type="application/json", headers=dict(headers or {}))
