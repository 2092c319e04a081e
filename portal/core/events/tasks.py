"""What the scheduler runs of the events."""

from __future__ import annotations

from datetime import UTC, datetime

from celery import shared_task

from portal.core.events import numbering


@shared_task
def forget_old(**_: object) -> None:
    """Delete events of more than 90 days; run again, there are none left."""
    numbering.forget_old(moment=datetime.now(UTC))
