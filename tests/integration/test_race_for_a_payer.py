"""Who pays changes while usage comes in and months are closed: each second is billed once, to somebody."""

from __future__ import annotations

from datetime import date

import pytest

from billing.catalog import third_party_payers
from billing.catalog.third_party_payers import PayerError
from billing.models import Invoice, Payer
from billing.rating import engine
from portal.core.tenants.models import Corrections, Tenant
from tests.builders import a_cluster, a_job, a_plan, a_tenant, ingest
from tests.integration.test_race_for_the_same_rows import at_once
from tests.stories import close, closed, hours, lines_of, prove

pytestmark = pytest.mark.usefixtures("transactional_db")


def test_two_who_would_pay_for_each_other_at_once_do_not() -> None:
    plan = a_plan()
    tenants = [a_tenant(f"t{n}", plan=plan) for n in range(4)]

    def pays(payer: Tenant, tenant: Tenant) -> str:
        try:
            third_party_payers.pay_for(payer=payer, tenant=tenant, since=date(2026, 4, 1))
        except PayerError as refusal:
            return str(refusal)
        return ""

    results = at_once(*[lambda n=n: pays(tenants[n], tenants[(n + 1) % 4]) for n in range(4)])

    assert results.count("") in {1, 2}
    rows = Payer.objects.values_list("tenant", "payer")
    assert not {tenant for tenant, _ in rows} & {payer for _, payer in rows}


def test_usage_that_comes_in_while_who_pays_changes_and_months_are_closed_is_billed_once() -> None:
    cluster, plan = a_cluster(complete_through="2026-09-01"), a_plan()
    credited = Corrections.CREDIT_NOTE
    child = a_tenant("child", plan=plan, accounts=[(cluster, "vision")], corrections=credited)
    parents = [a_tenant(f"parent-{n}", plan=plan, corrections=credited) for n in range(2)]
    for day in range(1, 29):
        ingest(cluster, a_job(started=f"2026-03-{day:02d} 10:00", ended=f"2026-03-{day:02d} 11:00"))

    def changes() -> None:
        for n, day in ((0, 5), (1, 12), (0, 20)):
            third_party_payers.pay_for(payer=parents[n], tenant=child, since=date(2026, 3, day))
            engine.rate_tenants([child])

    def comes_in() -> None:
        for day in range(1, 29, 3):
            ingest(cluster, a_job(started=f"2026-03-{day:02d} 20:00", ended=f"2026-03-{day:02d} 22:00"))

    def closes(tenant: Tenant) -> None:
        closed("2026-03", tenant)

    at_once(changes, comes_in, *[lambda tenant=lab: closes(tenant) for lab in (child, *parents)])
    engine.rate_tenants([child])
    for month in ("2026-03", "2026-04", "2026-05"):
        close(month)

    lines = [line for invoice in Invoice.objects.exclude(number=None) for line in lines_of(invoice)]
    sums = prove()
    assert (sums["billed"], sums["pending"]) == (hours(28 + 20), 0)
    assert sum(line.amount for line in lines) == 2 * (28 + 20) * 100
