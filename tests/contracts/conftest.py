"""What all contracts of connectors go by."""

from __future__ import annotations

import pytest

from clusters.connectors.prometheus import client


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits before a question is asked again."""
    monkeypatch.setattr(client, "AGAIN", (0, 0, 0))
