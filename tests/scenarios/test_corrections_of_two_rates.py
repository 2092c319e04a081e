"""Corrections on an invoice of their own, taxed at different rates: it asks for money, or there is none."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from billing.catalog import version_terms
from billing.models import Invoice
from portal.core.tenants.models import Corrections, Tenant
from tests.builders import LONG_AGO
from tests.on_terms import a_lab, used
from tests.stories import closed, invoice_of, prove, total
from tests.terms import TWO_DOLLARS, a_version

pytestmark = pytest.mark.django_db


def taxed(lab: Tenant, rate: int) -> Tenant:
    Tenant.objects.update(tax_rate=Decimal(rate), corrections=Corrections.OWN_INVOICE)
    lab.refresh_from_db()
    return lab


@pytest.mark.parametrize(
    ("late", "may", "june"),
    [
        # 100.00 more of April without tax, 90.00 less of March with 20 %: 10.00 net, and -8.00 with tax.
        (50, "carried forward", "14.00"),
        # 110.00 more: 20.00 net and 2.00 with tax, which is an invoice.
        (55, "issued", "20.00"),
    ],
)
def test_corrections_that_come_to_less_than_nothing_with_their_tax_are_no_invoice(
    late: int, may: str, june: str
) -> None:
    version = a_version(TWO_DOLLARS)
    cluster, lab = a_lab(version)
    used(cluster, 100, day="2026-03-10")
    closed("2026-03", taxed(lab, 20))
    used(cluster, 10, day="2026-04-10")
    closed("2026-04", taxed(lab, 0))

    version_terms.set_discount(
        version=version, name="Sorry", amount=Decimal(90), tenant=lab, valid_from=LONG_AGO,
        valid_until=date(2026, 4, 1),
    )  # fmt: skip
    used(cluster, late, day="2026-04-20")
    used(cluster, 1, day="2026-05-10")
    outcome = closed("2026-05", lab)

    assert outcome.outcome == may, outcome
    assert [invoice.total for invoice in Invoice.objects.filter(kind="correction")] == (
        [] if late == 50 else [200]
    )
    used(cluster, 10, day="2026-06-10")
    cluster.complete_through = None
    closed("2026-06", lab, accept="read")
    assert total(invoice_of(lab, "2026-06")) == june
    prove()
