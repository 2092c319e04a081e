"""Tenants that ask to leave: an owner says from which day on, and an operator ends its accounts and its plan then."""

from __future__ import annotations

from datetime import date, datetime, timedelta

from django.db import transaction
from django.db.models import QuerySet

from billing.invoicing import offboarding
from billing.models import Archive, Departure
from billing.sign_up.policy import SignUpError
from portal.core.tenants.models import Tenant

MOST_DAYS = 366
LONGEST_REASON = 500


def open_departures() -> QuerySet[Departure]:
    """Those that nobody took back or carried out, the earliest first."""
    rows = Departure.objects.filter(withdrawn_at=None, ended_at=None).select_related("tenant")
    return rows.order_by("leaves_on", "pk")


def departure_of(tenant: Tenant) -> Departure | None:
    """The open one. One query."""
    return Departure.objects.filter(tenant=tenant, withdrawn_at=None, ended_at=None).first()


@transaction.atomic
def ask_to_leave(*, tenant: Tenant, leaves_on: date, reason: str, by: str, moment: datetime) -> Departure:
    """Ask that the tenant leaves with that day of its zone. Asked again, the day and the reason are as said now.

    Nothing ends before an operator carries it out. Raises SignUpError for a day that is not to come, more than a
    year ahead, and for who has left.
    """
    _lock(tenant)
    if Archive.objects.filter(tenant=tenant).exists():
        raise SignUpError("departure-of-archived", tenant=tenant)
    today = moment.astimezone(tenant.zone).date()
    if not today < leaves_on <= today + timedelta(days=MOST_DAYS):
        raise SignUpError("departure-past", most=MOST_DAYS)
    text = reason.replace("\0", "").strip()[:LONGEST_REASON]
    present = departure_of(tenant)
    row = present or Departure(tenant=tenant, asked_at=moment)
    if present is None or (row.leaves_on, row.reason) != (leaves_on, text):
        row.leaves_on, row.reason, row.asked_by = leaves_on, text, by[:254]
        row.save()
    return row


@transaction.atomic
def withdraw(*, tenant: Tenant, moment: datetime) -> None:
    """The tenant stays. Raises SignUpError where it has not asked, or an operator has carried it out."""
    _lock(tenant)
    row = departure_of(tenant)
    if row is None:
        raise SignUpError("departure-none", tenant=tenant)
    row.withdrawn_at = moment
    row.save(update_fields=["withdrawn_at"])


@transaction.atomic
def carry_out(*, tenant: Tenant, moment: datetime) -> int:
    """End the accounts and the plan of a tenant that asked to leave, now; how many accounts.

    Its closing invoice is the next close's; `offboarding.archive_tenant` follows once that is paid. Raises SignUpError
    where it has not asked, and PlanError as `offboarding.end_services` does.
    """
    _lock(tenant)
    row = departure_of(tenant)
    if row is None:
        raise SignUpError("departure-none", tenant=tenant)
    ended = offboarding.end_services(tenant=tenant, at=moment)
    row.ended_at = moment
    row.save(update_fields=["ended_at"])
    return ended


def _lock(tenant: Tenant) -> None:
    Tenant.objects.select_for_update(no_key=True).only("pk").get(pk=tenant.pk)
