"""Lines by hand: adding one to a tenant's next invoice, and taking it off again before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal

from django.db import transaction

from billing.catalog.tenant_lock import lock
from billing.invoicing.messages import SENTENCES
from billing.models import BillingPeriod, InvoiceLine, LineKind, ManualLine, Subscription
from billing.rules.errors import RuleError
from billing.rules.money import TOKENS, Money
from portal.core.tenants.models import Tenant
from portal.errors import CodedError


class ManualLineError(CodedError):
    """A line cannot be added or removed so; the message says why and what to do."""

    sentences = SENTENCES


@transaction.atomic
def add_manual_line(
    *, tenant: Tenant, description: str, net: Money, reason: str, by: str, on: date
) -> ManualLine:
    """Put an amount before tax, below zero to take off, on the tenant's next invoice in that currency.

    Each call adds a line. Raises ManualLineError for nothing, and without what it is or why.
    """
    lock(tenant)
    if not description.strip() or not reason.strip():
        raise ManualLineError("line-without-description")
    if net != net.rounded() or not net.amount:
        raise ManualLineError("line-of-nothing", currency=net.currency)
    try:
        net.check_bookable()
    except RuleError as error:
        raise ManualLineError(error.code, **error.values) from error
    plans = Subscription.objects.filter(tenant=tenant).order_by("plan__currency").distinct()
    currencies = [
        plan_currency
        for plan_currency in plans.values_list("plan__currency", flat=True)
        if plan_currency != TOKENS
    ]
    if currencies and net.currency not in currencies:
        raise ManualLineError(
            "line-of-other-currency",
            tenant=tenant,
            currencies=" and ".join(currencies),
            currency=net.currency,
        )
    return ManualLine.objects.create(
        tenant=tenant,
        description=description.strip(),
        amount=net.minor,
        currency=net.currency,
        reason=reason.strip(),
        by=by,
        added_on=on,
    )


@transaction.atomic
def remove_manual_line(*, line: ManualLine) -> None:
    """Take the line off again; one that was taken off is gone. Raises ManualLineError where an invoice holds it."""
    lock(line.tenant)
    if InvoiceLine.objects.filter(
        kind=LineKind.MANUAL, term_id=line.pk, invoice__number__isnull=False
    ).exists():
        raise ManualLineError("line-billed", description=line.description)
    line.delete()


def list_pending(tenants: Iterable[Tenant]) -> Mapping[int, list[ManualLine]]:
    """By tenant what waits for its next invoice, the oldest first. One query."""
    lines: dict[int, list[ManualLine]] = defaultdict(list)
    for line in ManualLine.objects.pending().filter(tenant__in=tenants).order_by("pk"):
        lines[line.tenant_id].append(line)
    return lines


def make_lines(waiting: Iterable[ManualLine], *, period: BillingPeriod, currency: str) -> list[InvoiceLine]:
    """The lines of that currency for an invoice of the period; not saved, and not taxed yet."""
    return [
        InvoiceLine(
            tenant_id=line.tenant_id,
            service_period=period,
            kind=LineKind.MANUAL,
            term_id=line.pk,
            description=line.description,
            seconds_num=Decimal(0),
            seconds_den=1,
            amount=line.amount,
        )
        for line in waiting
        if line.currency == currency
    ]
