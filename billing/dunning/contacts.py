"""Where e-mails of a tenant go, which of these addresses its mail server refuses, and changing that."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from billing.catalog.tenant_lock import lock
from billing.dunning import claims
from billing.dunning.issue_notices import OLD
from billing.dunning.messages import SENTENCES
from billing.models import Notice, NoticeState
from portal.core.tenants.models import Tenant
from portal.errors import CodedError


class ContactError(CodedError):
    """An address cannot be so; the message says why and what to do."""

    sentences = SENTENCES


@transaction.atomic
def set_billing_email(*, tenant: Tenant, email: str, moment: datetime) -> Tenant:
    """Have e-mails go to this address; "": to the owners and billing members. Again, nothing changes.

    What the address before refused is sent to the new one, and what of the last weeks could be sent to nobody.
    Raises ContactError for what is no address.
    """
    email = email.strip()
    try:
        if email:
            validate_email(email)
    except ValidationError as error:
        raise ContactError("no-address", email=email[:80]) from error
    tenant = lock(tenant)
    if tenant.email != email:
        tenant.email = email
        tenant.save(update_fields=["email"])
        refused = Notice.objects.filter(tenant=tenant).exclude(refused={})
        refused.filter(state=NoticeState.WAITING).update(not_before=moment)
        unsent = Notice.objects.filter(tenant=tenant, reason=claims.NOBODY, created_at__gte=moment - OLD)
        failed = refused.filter(state=NoticeState.FAILED) | unsent.filter(
            state__in=(NoticeState.SKIPPED, NoticeState.FAILED)
        )
        failed.update(state=NoticeState.WAITING, not_before=moment, tries=0)
    return tenant


def list_refused_addresses(tenant: Tenant) -> Mapping[str, str]:
    """By address, what the mail server said of the tenant's last e-mail to it. One query."""
    newest = _list_answered().filter(tenant=tenant).order_by("-sent_at", "-pk").first()
    return _still_refused(newest, tenant.email) if newest is not None else {}


def list_refused_notices(*, limit: int) -> list[tuple[Notice, Mapping[str, str]]]:
    """Of all tenants, the newest notice of each that was refused. One query."""
    later = _list_answered().filter(tenant=OuterRef("tenant"), sent_at__gt=OuterRef("sent_at"))
    same = _list_answered().filter(
        tenant=OuterRef("tenant"), sent_at=OuterRef("sent_at"), pk__gt=OuterRef("pk")
    )
    rows = _list_answered().exclude(refused={}).filter(~Exists(later), ~Exists(same)).select_related("tenant")
    refusals = [(row, _still_refused(row, row.tenant.email)) for row in rows.order_by("-sent_at")[:limit]]
    return [(row, refused) for row, refused in refusals if refused]


def _list_answered() -> QuerySet[Notice]:
    """What the mail server has answered to."""
    answered = Q(state=NoticeState.SENT) | ~Q(refused={})
    return Notice.objects.filter(answered, sent_at__isnull=False).defer("text", "html")


def _still_refused(notice: Notice, email: str) -> Mapping[str, str]:
    """Without addresses that were corrected since."""
    return {to: why for to, why in notice.refused.items() if not email or to == email}
