"""Wallets that pay invoices first, where one tenant pays for another: each pays the invoices of its own tenant."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from billing.models import Invoice, Wallet, WalletGrant, WalletScope
from billing.wallets import grants, wallet_terms
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from tests.builders import LONG_AGO, a_cluster, a_plan, a_tenant, at
from tests.on_terms import used
from tests.paying import pays
from tests.stories import close, closed, invoice_of, printed, prove, total

pytestmark = pytest.mark.django_db

MID_MARCH = date(2026, 3, 16)


@pytest.fixture
def cluster() -> Cluster:
    return a_cluster(complete_through="2026-09-01")


def a_lab(cluster: Cluster, slug: str, settles: str) -> Tenant:
    """At 2.00 an hour; with an account and a project of its name."""
    plan = a_plan(f"plan of {slug}", "USD", prices=[("gpu-hour", {}, "2.00", LONG_AGO)], settles=settles)
    return a_tenant(slug, name=slug.title(), plan=plan, accounts=[(cluster, slug)])


def prepaid(tenant: Tenant, cents: int, **options: Any) -> Wallet:
    scheme = wallet_terms.set_scheme(
        tenant=tenant, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
    )
    wallet = Wallet.objects.get(scheme=scheme)
    grants.grant(wallet=wallet, amount=cents, key="R1", who="op", moment=at("2026-03-01"), **options)
    return wallet


def paid_first(tenant: Tenant) -> list[tuple[str, int]]:
    """Each invoice's total, and what a wallet paid of it, in cents."""
    return [
        (total(invoice), invoice.prepaid) for invoice in Invoice.objects.filter(tenant=tenant).order_by("pk")
    ]


def left() -> dict[str, int]:
    return dict(WalletGrant.objects.values_list("wallet__tenant__slug", "left"))


def test_the_payers_wallet_pays_its_invoice_with_the_lines_of_whom_it_pays_for(cluster: Cluster) -> None:
    physics, vision = a_lab(cluster, "physics", "wallet-first"), a_lab(cluster, "vision", "invoice")
    prepaid(physics, 50_00)
    pays(physics, vision, "2026-03-01")
    used(cluster, 10, "physics")
    used(cluster, 30, "vision")

    close("2026-03")

    assert printed(invoice_of(physics, "2026-03")) == [
        ("2026-03", "physics", "10", "20.00"),
        ("2026-03", "Vision: vision", "30", "60.00"),
    ]
    assert paid_first(physics) == [("80.00", 50_00)]
    assert left() == {"physics": 0}
    prove()


def test_the_wallet_of_the_tenant_that_uses_pays_its_own_invoices_alone(cluster: Cluster) -> None:
    physics, vision = a_lab(cluster, "physics", "invoice"), a_lab(cluster, "vision", "wallet-first")
    prepaid(vision, 50_00)
    pays(physics, vision, "2026-03-17")
    used(cluster, 10, "vision", day="2026-03-10")
    used(cluster, 30, "vision", day="2026-03-20")

    close("2026-03")

    assert paid_first(vision) == [("20.00", 20_00)]
    assert paid_first(physics) == [("60.00", 0)]
    assert left() == {"vision": 30_00}
    prove()


@pytest.mark.parametrize(("day", "paid"), [("2026-03-10", 62_00), ("2026-03-20", 2_00)])
def test_a_grant_that_expires_pays_for_the_days_on_which_the_other_used_it(
    cluster: Cluster, day: str, paid: int
) -> None:
    """Physics itself used one hour on the second; the rest is Vision's, of one day."""
    physics, vision = a_lab(cluster, "physics", "wallet-first"), a_lab(cluster, "vision", "invoice")
    prepaid(physics, 100_00, expires_on=MID_MARCH)
    pays(physics, vision, "2026-03-01")
    used(cluster, 1, "physics", day="2026-03-02")
    used(cluster, 30, "vision", day=day)

    closed("2026-03", physics)

    assert paid_first(physics) == [("62.00", paid)]
    prove()


def test_a_grant_that_expires_does_not_pay_by_days_on_which_another_paid(cluster: Cluster) -> None:
    """Vision's own invoice is of its days until the 17th; what Physics pays after that has no part in it."""
    physics, vision = a_lab(cluster, "physics", "invoice"), a_lab(cluster, "vision", "wallet-first")
    prepaid(vision, 100_00, expires_on=MID_MARCH)
    pays(physics, vision, "2026-03-17")
    used(cluster, 10, "vision", day="2026-03-10")
    used(cluster, 30, "vision", day="2026-03-20")

    close("2026-03")

    assert paid_first(vision) == [("20.00", 20_00)]
    assert paid_first(physics) == [("60.00", 0)]
    prove()
