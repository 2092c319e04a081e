"""What the scheduler and the workers run of webhooks. Each may run twice, at once, and die anywhere."""

from __future__ import annotations

import smtplib
from datetime import UTC, datetime
from secrets import SystemRandom

import structlog
from celery import shared_task
from django.conf import settings
from django.core.mail import EmailMessage, get_connection
from django.core.mail.backends.base import BaseEmailBackend

from portal.core.tenants.brand import sender
from portal.core.tenants.recipients import owner_addresses
from portal.core.webhooks import deliveries, delivery_run
from portal.core.webhooks.models import Webhook, WebhookState

AT_ONCE = 200
log = structlog.get_logger("portal.webhooks")


def _now() -> datetime:
    return datetime.now(UTC)


@shared_task
def place_events(**_: object) -> None:
    """Give committed events their places and deliveries; then a worker is told to send these."""
    is_any = False
    while deliveries.place_events(moment=_now()):
        is_any = True
    if is_any:
        deliver.apply_async(expires=10)


@shared_task
def deliver(**_: object) -> None:
    """Send what is due."""
    delivery_run.deliver_due(clock=_now, random=SystemRandom().random)


@shared_task
def forget_old(**_: object) -> None:
    """Delete deliveries of more than 30 days; run again, there are none left."""
    deliveries.forget_old(moment=_now())


@shared_task
def announce_off(**_: object) -> int:
    """Mail the owners of webhooks that were given up; how many webhooks. Claimed before it is mailed, so told once."""
    given_up = Webhook.objects.filter(announced_at=None, state__in=[WebhookState.GONE, WebhookState.FAILING])
    if not settings.CLUSTERTAB_SENDS_MAIL:
        return given_up.update(announced_at=_now())
    rows = list(given_up.select_related("tenant").order_by("pk")[:AT_ONCE])
    if not rows:
        return 0
    server = get_connection()
    try:
        server.open()
        return sum(_announce(row, server) for row in rows)
    except (OSError, smtplib.SMTPException) as error:  # the server, or one mail: the next round goes on
        log.warning("the owners of a webhook could not be mailed", error=str(error))
        return 0
    finally:
        server.close()


def _announce(row: Webhook, server: BaseEmailBackend) -> bool:
    if not Webhook.objects.filter(pk=row.pk, announced_at=None).update(announced_at=_now()):
        return False
    to = owner_addresses(row.tenant_id)
    if not to:
        return False
    whose = f"tenant {row.tenant.name}" if row.tenant else "operators"
    why = (
        "The endpoint answered 410 Gone."
        if row.state == WebhookState.GONE
        else "Every attempt of the last 5 days failed."
    )
    text = (
        f"The webhook {row.name} of {whose} was turned off. {why}\n\n"
        f"Address: {row.url}\n\n"
        "Events are not sent to it any more. When the endpoint works again, turn the webhook on on the page "
        "Webhooks, then choose “Send again” for the events of the meantime.\n"
    )
    try:
        EmailMessage(f"Webhook turned off: {row.name}", text, sender(), to, connection=server).send()
    except (smtplib.SMTPResponseException, smtplib.SMTPRecipientsRefused) as error:
        log.warning("the owners of a webhook could not be mailed", webhook=row.pk, error=str(error))
        return False
    return True
