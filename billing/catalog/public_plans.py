"""Which plans people choose by themselves, and what they get to begin with."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from django.db import transaction

from billing.catalog.plans import PlanError
from billing.models import Plan, Settles
from billing.rules.money import LARGEST, Money


@transaction.atomic
def set_offer(*, plan: Plan, public: bool | None = None, starting_credit: Decimal | None = None) -> Plan:
    """Have people sign up for the plan, or not, with so much credit in whole units; None: as it is.

    Asked again, nothing changes. Tenants that are on it stay on it. Raises PlanError for what is no amount, and for
    credit without a wallet that pays.
    """
    row = Plan.objects.select_for_update().get(pk=plan.pk)
    credit = row.starting_credit if starting_credit is None else _minor(row, starting_credit)
    if credit and row.settles == Settles.INVOICE:
        raise PlanError("starting-credit-without-wallet", plan=row)
    offer = (row.public if public is None else public, credit)
    if offer != (row.public, row.starting_credit):
        row.public, row.starting_credit = offer
        row.save(update_fields=["public", "starting_credit"])
    return row


def _minor(plan: Plan, amount: Decimal) -> int:
    """In smallest units. Raises PlanError."""
    money = Money(Fraction(amount), plan.currency)
    if amount < 0 or money != money.rounded() or money.minor > LARGEST:
        raise PlanError("starting-credit-amount", plan=plan, amount=amount, currency=plan.currency)
    return money.minor
