"""Mails to people about what they may do here: written in the transaction of the change, sent after it."""

from __future__ import annotations

import smtplib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import structlog
from django.conf import settings
from django.core.mail import EmailMessage, get_connection
from django.core.mail.backends.base import BaseEmailBackend
from django.db.models.functions import Now
from django.template.loader import render_to_string

from portal.core.tenants import invitation_links
from portal.core.tenants.brand import current_brand, sender
from portal.core.tenants.models import AccountMail, Invitation, OperatorRole, Role, Tenant, User
from portal.languages import in_language, written_day

AT_ONCE = 200
LEASE = timedelta(minutes=5)  # whoever claimed a mail and died has so long before another sends it
TRIES = 10
RETENTION = timedelta(days=30)
log = structlog.get_logger("portal.core.tenants")


def write(
    *,
    kind: AccountMail.Kind,
    to: str,
    moment: datetime | None = None,
    tenant: Tenant | None = None,
    invitation: Invitation | None = None,
    values: Mapping[str, str],
) -> None:
    """Have it sent once the transaction around this has committed; without a mail server it is never sent.

    `moment` is when it was written; without one, when the transaction began.
    """
    at = moment or Now()
    AccountMail.objects.bulk_create(
        [
            AccountMail(
                kind=kind,
                to=to,
                tenant=tenant,
                invitation=invitation,
                values=dict(values),
                created_at=at,
                due_at=at if can_send() else None,
            )
        ]
    )


def can_send() -> bool:
    """Whether mails with links into the portal reach anybody."""
    return bool(settings.CLUSTERTAB_SENDS_MAIL and settings.PORTAL_URL)


def send_due(*, moment: datetime) -> int:
    """Send what is due; how many. By two at once each is sent once; after a kill, perhaps twice.

    Must not be called inside a transaction.
    """
    due = AccountMail.objects.filter(due_at__lte=moment).order_by("due_at", "pk")
    mails = list(due.select_related("tenant", "invitation")[:AT_ONCE])
    if not mails or not can_send():
        return 0
    server = get_connection()
    try:
        server.open()
        return sum(_send_claimed(mail, server, moment) for mail in mails)
    except (
        OSError,
        smtplib.SMTPException,
    ) as error:  # the server: what is claimed is due again after its lease
        log.warning("account mails could not be sent", error=str(error))
        return 0
    finally:
        server.close()


def forget_old(*, moment: datetime) -> int:
    """Delete mails older than 30 days that are not on their way; how many."""
    rows = AccountMail.objects.filter(created_at__lt=moment - RETENTION, due_at=None)
    return rows.delete()[0]


def _send_claimed(mail: AccountMail, server: BaseEmailBackend, moment: datetime) -> bool:
    last = mail.attempts + 1 >= TRIES
    due_at = None if last else moment + LEASE * (1 << min(mail.attempts, 8))
    claimed = AccountMail.objects.filter(pk=mail.pk, due_at=mail.due_at)
    if not claimed.update(due_at=due_at, attempts=mail.attempts + 1):
        return False
    subject, text = compose(mail)
    message = EmailMessage(subject, text, sender(), [mail.to], connection=server)
    try:
        message.send()
    except (smtplib.SMTPResponseException, smtplib.SMTPRecipientsRefused) as error:
        log.warning("an account mail was refused", mail=mail.pk, error=type(error).__name__)
        return False
    AccountMail.objects.filter(pk=mail.pk).update(sent_at=moment, due_at=None)
    return True


def compose(mail: AccountMail) -> tuple[str, str]:
    """Subject and text: in the language of the person, else of the tenant."""
    person = User.objects.filter(email=mail.to).values_list("language", flat=True).first()
    with in_language(person or (mail.tenant.language if mail.tenant else "")):
        return _compose(mail)


def _compose(mail: AccountMail) -> tuple[str, str]:
    values = {
        **mail.values,
        "tenant": mail.tenant.name if mail.tenant else "",
        "slug": mail.tenant.slug if mail.tenant else "",
        "portal": settings.PORTAL_URL,
        "brand": current_brand().name,
        "role_label": role_label(mail.values.get("role", "")),
    }
    if mail.invitation is not None:
        values["link"] = invitation_links.url_of(mail.invitation)
        at = mail.invitation.expires_at.astimezone(UTC)
        values["expires"] = f"{written_day(at.date())}, {at:%H:%M}"
    subject, _, text = render_to_string(f"emails/people/{mail.kind}.txt", values).partition("\n")
    return " ".join(subject.split()), text.strip() + "\n"


def role_label(role: str) -> str:
    """`Owner: everything, people included`, of a tenant's or an operator's role."""
    labels = {**dict(OperatorRole.choices), **dict(Role.choices)}
    return str(labels.get(role, role))
