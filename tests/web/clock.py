"""The moment at which pages are looked at."""

from __future__ import annotations

from datetime import datetime, tzinfo

import pytest

from tests import builders


def stand_at(
    monkeypatch: pytest.MonkeyPatch, moment: str, *, of: str = "portal.web.access_decorators"
) -> None:
    """From here on tenants' pages, or those of that module, are opened at `"2026-03-15 10:00"`, in UTC."""

    class FrozenDatetime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> FrozenDatetime:
            return cls.fromtimestamp(builders.at(moment).timestamp(), tz)

    monkeypatch.setattr(f"{of}.datetime", FrozenDatetime)
