"""Letting an invoice rest, or all of a tenant's, for a time or for good; and going on."""

from __future__ import annotations

from datetime import date, datetime

from django.db import transaction
from django.db.models import OuterRef, Q, QuerySet

from billing.catalog.tenant_lock import lock
from billing.models import DunningPause, Invoice
from billing.receivables.messages import SENTENCES
from portal.core.tenants.models import Tenant
from portal.errors import CodedError


class PauseError(CodedError):
    """It cannot be paused so; the message says why and what to do."""

    sentences = SENTENCES


@transaction.atomic
def pause_dunning(
    *, tenant: Tenant, invoice: Invoice | None, until: date | None, reason: str, by: str, moment: datetime
) -> DunningPause:
    """Charge, write and suspend nothing until that day, or until somebody resumes; of one invoice, or of all.

    The same again is the same pause; another day or reason takes the place of what was said before.
    Raises PauseError without a reason, and for a day that is not to come.
    """
    tenant = lock(tenant)
    if not reason.strip():
        raise PauseError("pause-without-reason")
    if until is not None and until <= moment.date():
        raise PauseError("pause-ends-in-the-past", until=until)
    if invoice is not None and invoice.tenant_id != tenant.pk:
        raise PauseError("invoice-of-another-tenant", invoice=invoice, tenant=tenant.slug)
    existing = DunningPause.objects.filter(tenant=tenant, invoice=invoice, ended_at=None).first()
    if existing is not None:
        if (existing.until, existing.reason) == (until, reason.strip()):
            return existing
        existing.ended_at, existing.ended_by = moment, by
        existing.save()
    return DunningPause.objects.create(
        tenant=tenant, invoice=invoice, until=until, reason=reason.strip(), by=by, since=moment
    )


@transaction.atomic
def resume_dunning(*, tenant: Tenant, invoice: Invoice | None, by: str, moment: datetime) -> bool:
    """Go on. Whether it was paused; again, it was not."""
    rows = DunningPause.objects.filter(tenant=lock(tenant), invoice=invoice, ended_at=None)
    for row in rows:
        row.ended_at, row.ended_by = moment, by
        row.save()
    return bool(rows)


def filter_active(on: date) -> QuerySet[DunningPause]:
    """Pauses that hold on that day."""
    return DunningPause.objects.filter(Q(until=None) | Q(until__gt=on), ended_at=None)


def filter_of_invoice(on: date) -> QuerySet[DunningPause]:
    """Pauses that hold for the outer query's invoice: its own, or of all of its tenant's."""
    return filter_active(on).filter(Q(invoice=OuterRef("pk")) | Q(invoice=None), tenant=OuterRef("tenant"))
