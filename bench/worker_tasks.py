"""What the bench has a worker do beside its ordinary tasks."""

from __future__ import annotations

from datetime import datetime

from celery import shared_task

RATED = "rated"


@shared_task
def close_january() -> None:
    from bench import closing

    closing.everybody()


@shared_task
def rate_everything() -> None:
    """Leaves a file when it is done."""
    from bench import instance
    from billing.rating import engine
    from clusters import usage

    engine.rate_accounts(usage.account_ids())
    (instance.HOME / RATED).touch()


@shared_task
def pass_over_quotas(moment: str) -> None:
    """As the task has it, at that moment."""
    from billing.admission import follow
    from billing.quotas import review

    follow.follow_reservations(moment=datetime.fromisoformat(moment))
    review.review_quotas(moment=datetime.fromisoformat(moment))
