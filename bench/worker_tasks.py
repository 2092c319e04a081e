"""What the bench has a worker do beside its ordinary tasks."""

from __future__ import annotations

from celery import shared_task


@shared_task
def close_january() -> None:
    from bench import closing

    closing.everybody()
