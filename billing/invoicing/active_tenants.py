"""Whom an invoice can still follow for, once a period has ended."""

from __future__ import annotations

from collections.abc import Iterable

from billing.catalog import third_party_payers
from billing.models import BillingPeriod, Subscription
from portal.core.tenants.models import Ownership


def list_billable_tenants(periods: Iterable[BillingPeriod]) -> set[int]:
    """The tenants, of whom each has one of the periods, to whom something can be billed for the time behind it.

    Those own an account then, are on a plan, or pay for somebody. All others leave. Four queries at most.
    """
    ends = {period.tenant_id: period.end for period in periods}
    relations = [
        *Ownership.objects.filter(tenant__in=ends).values_list("tenant", "until"),
        *Subscription.objects.filter(tenant__in=ends).values_list("tenant", "until"),
        *(
            (stretch.payer, stretch.until)
            for stretch in third_party_payers.stretches_of(payers=ends)
            if stretch.payer in ends
        ),
    ]
    return {tenant for tenant, until in relations if until is None or until > ends[tenant]}
