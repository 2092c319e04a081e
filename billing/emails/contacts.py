"""Where e-mails of a tenant go, which of these addresses its mail server refuses, and changing that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import datetime

from django.core.exceptions import ValidationError
from django.core.validators import MaxLengthValidator, validate_email
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from billing.catalog.tenant_lock import lock
from billing.emails import claims
from billing.emails.messages import SENTENCES
from billing.models import BillingContact, Notice, NoticeState
from billing.models.contacts import TOPICS
from billing.notifications.issue_notices import OLD
from portal.core.tenants.models import Tenant
from portal.errors import CodedError

MOST = 20
"""Contacts of one tenant."""
LONGEST = 254
"""Characters of an address, as its columns have room for."""


class ContactError(CodedError):
    """An address cannot be so; the message says why and what to do."""

    sentences = SENTENCES


@transaction.atomic
def set_billing_email(*, tenant: Tenant, email: str, moment: datetime) -> Tenant:
    """Have e-mails that no contact gets go to this address; "": to the owners and billing members. Again, the same.

    What the address before refused is sent to the new one, and what of the last weeks could be sent to nobody.
    Raises ContactError for what is no address.
    """
    email = _checked(email) if email.strip() else ""
    tenant = lock(tenant)
    if tenant.email != email:
        tenant.email = email
        tenant.save(update_fields=["email"])
        _send_again(tenant, moment)
    return tenant


@transaction.atomic
def set_contact(
    *, tenant: Tenant, email: str, topics: Collection[str], moment: datetime
) -> BillingContact | None:
    """Have the address get these of TOPICS and no others; of none, it is a contact no more. Again, nothing changes.

    What was refused, or could be sent to nobody, is sent as `set_billing_email` says. Raises ContactError for what is
    no address, an unknown topic, and beyond MOST.
    """
    email = _checked(email)
    if unknown := sorted({*topics} - {*TOPICS}):
        raise ContactError("no-topic", topic=unknown[0], topics=", ".join(TOPICS))
    tenant = lock(tenant)
    values = {topic: topic in topics for topic in TOPICS}
    row = BillingContact.objects.filter(tenant=tenant, email=email).first()
    if not topics:
        BillingContact.objects.filter(tenant=tenant, email=email).delete()
        if row is not None:
            _send_again(tenant, moment)
        return None
    if row is None and BillingContact.objects.filter(tenant=tenant).count() >= MOST:
        raise ContactError("too-many-contacts", most=MOST)
    is_new = row is None
    row = row or BillingContact(tenant=tenant, email=email)
    if is_new or any(getattr(row, topic) != value for topic, value in values.items()):
        for topic, value in values.items():
            setattr(row, topic, value)
        row.save()
        _send_again(tenant, moment)
    return row


def list_refused_addresses(tenant: Tenant) -> Mapping[str, str]:
    """By address, what the mail server said of the tenant's last e-mail to it. Two queries."""
    newest = _list_answered().filter(tenant=tenant).order_by("-sent_at", "-pk").first()
    return _still_refused(newest, _addresses([tenant])[tenant.pk]) if newest is not None else {}


def list_refused_notices(*, limit: int) -> list[tuple[Notice, Mapping[str, str]]]:
    """Of all tenants, the newest notice of each that was refused. Two queries."""
    later = _list_answered().filter(tenant=OuterRef("tenant"), sent_at__gt=OuterRef("sent_at"))
    same = _list_answered().filter(
        tenant=OuterRef("tenant"), sent_at=OuterRef("sent_at"), pk__gt=OuterRef("pk")
    )
    rows = _list_answered().exclude(refused={}).filter(~Exists(later), ~Exists(same)).select_related("tenant")
    notices = list(rows.order_by("-sent_at")[:limit])
    addresses = _addresses([row.tenant for row in notices])
    refusals = [(row, _still_refused(row, addresses[row.tenant_id])) for row in notices]
    return [(row, refused) for row, refused in refusals if refused]


def _checked(email: str) -> str:
    email = email.strip()
    try:
        validate_email(email)
        MaxLengthValidator(LONGEST)(email)
    except ValidationError as error:
        raise ContactError("no-address", email=email[:80]) from error
    return email


def _send_again(tenant: Tenant, moment: datetime) -> None:
    refused = Notice.objects.filter(tenant=tenant).exclude(refused={})
    refused.filter(state=NoticeState.WAITING).update(not_before=moment)
    unsent = Notice.objects.filter(tenant=tenant, reason=claims.NOBODY, created_at__gte=moment - OLD)
    failed = refused.filter(state=NoticeState.FAILED) | unsent.filter(
        state__in=(NoticeState.SKIPPED, NoticeState.FAILED)
    )
    failed.update(state=NoticeState.WAITING, not_before=moment, tries=0)


def _list_answered() -> QuerySet[Notice]:
    """What the mail server has answered to."""
    answered = Q(state=NoticeState.SENT) | ~Q(refused={})
    return Notice.objects.filter(answered, sent_at__isnull=False).defer("text", "html")


def _addresses(tenants: Collection[Tenant]) -> Mapping[int, set[str]]:
    """By tenant, its billing e-mail and its contacts; nothing where e-mails go to its people alone."""
    named: dict[int, set[str]] = defaultdict(set)
    for tenant in tenants:
        named[tenant.pk] |= {tenant.email} - {""}
    contacts = BillingContact.objects.filter(tenant__in=[tenant.pk for tenant in tenants])
    for pk, email in contacts.values_list("tenant", "email"):
        named[pk].add(email)
    return named


def _still_refused(notice: Notice, addresses: Collection[str]) -> Mapping[str, str]:
    """Without addresses that were corrected since."""
    return {to: why for to, why in notice.refused.items() if not addresses or to in addresses}
