"""What workers do for people. Each may run twice, at once, and die anywhere."""

from __future__ import annotations

from datetime import UTC, datetime

from celery import shared_task

from portal.core.tenants import account_mails, team


@shared_task
def send_account_mails(**_: object) -> int:
    """Send invitations and what else people are mailed about their accounts; how many."""
    return account_mails.send_due(moment=datetime.now(UTC))


@shared_task
def forget_account_mails(**_: object) -> int:
    """Delete the mails of more than 30 days, and accounts whose address nobody proved within seven; how many."""
    moment = datetime.now(UTC)
    return account_mails.forget_old(moment=moment) + team.forget_unproved(moment=moment)
