"""What workers do for the API. Each may run twice, at once, and die anywhere."""

from __future__ import annotations

import smtplib
from datetime import UTC, datetime

import structlog
from celery import shared_task
from django.conf import settings
from django.core.mail import EmailMessage, get_connection
from django.core.mail.backends.base import BaseEmailBackend

from portal.api import idempotency
from portal.api.models import ApiKey
from portal.core.tenants.brand import sender
from portal.core.tenants.recipients import owner_addresses

AT_ONCE = 200
log = structlog.get_logger("portal.api")


@shared_task
def announce_keys(**_: object) -> int:
    """Mail the owners of each new key; how many keys. A key is claimed before it is mailed, so it is told once."""
    moment = datetime.now(UTC)
    waiting = ApiKey.objects.filter(announced_at=None)
    if not settings.CLUSTERTAB_SENDS_MAIL:
        return waiting.update(announced_at=moment)
    keys = list(waiting.select_related("tenant", "maker").order_by("pk")[:AT_ONCE])
    if not keys:
        return 0
    server = get_connection()
    try:
        server.open()
        return sum(_announce(key, server, moment) for key in keys)
    except (OSError, smtplib.SMTPException) as error:  # the server, or one letter: the next round goes on
        log.warning("the owners of a new key could not be mailed", error=str(error))
        return 0
    finally:
        server.close()


def _announce(key: ApiKey, server: BaseEmailBackend, moment: datetime) -> bool:
    from billing.emails.formatting import one_line  # with Babel, which other workers do not need

    if not ApiKey.objects.filter(pk=key.pk, announced_at=None).update(announced_at=moment):
        return False
    to = owner_addresses(key.tenant_id)
    if not to:
        return False
    name = one_line(key.name)  # older ones may have more
    whose = f"tenant {one_line(key.tenant.name)}" if key.tenant else "operators"
    text = (
        f"{key.maker.email} made the API key “{name}” (ct_live_{key.prefix}…) for {whose}.\n\n"
        f"Scopes: {', '.join(key.scopes)}.\n\n"
        "If you do not know of it, revoke it on the page API keys.\n"
    )
    try:
        EmailMessage(f"New API key: {name}", text, sender(), to, connection=server).send()
    except (smtplib.SMTPResponseException, smtplib.SMTPRecipientsRefused) as error:
        log.warning("the owners of a new key could not be mailed", key=key.prefix, error=str(error))
        return False
    return True


@shared_task
def forget_answers(**_: object) -> int:
    """Delete the stored answers to requests older than 48 hours; how many."""
    return idempotency.forget_old(moment=datetime.now(UTC))
