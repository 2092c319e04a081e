"""A correction may take back more than its invoice asked for: what stands in its place is billed by the next one."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from billing.catalog import version_terms
from billing.models import Invoice
from portal.core.tenants.models import Corrections
from tests.builders import a_cluster, a_job, a_tenant, ingest
from tests.stories import closed, invoice_of, printed, prove
from tests.terms import TWO_DOLLARS, a_version

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("tax", ["0", "19"])
@pytest.mark.parametrize("policy", list(Corrections))
def test_use_that_comes_late_takes_the_place_of_a_minimum_less_a_discount(policy: str, tax: str) -> None:
    """A minimum of 50.00 less 10 %: March was billed with 45.00 and no use, and then 25 hours of it come late."""
    cluster = a_cluster(complete_through="2026-09-01")
    version = a_version(TWO_DOLLARS)
    version_terms.set_commitment(version=version, name="Minimum", amount=Decimal(50))
    version_terms.set_discount(
        version=version, name="Ten per cent", percent=Decimal(10), valid_from=date(2026, 3, 1)
    )
    lab = a_tenant(
        plan=version.plan,
        plan_from=date(2026, 3, 1),
        accounts=[(cluster, "vision")],
        corrections=policy,
        tax_rate=Decimal(tax),
    )
    closed("2026-03", lab)
    assert invoice_of(lab, "2026-03").subtotal == 45_00

    ingest(
        cluster,
        a_job(started="2026-03-02 00:00", ended="2026-03-03 01:00"),
        a_job(started="2026-04-02 00:00", ended="2026-04-04 02:00"),
    )
    closed("2026-04", lab)

    assert not Invoice.objects.filter(kind="credit-note").exists()  # of 50.00: more than March's invoice
    assert sum(invoice.subtotal for invoice in Invoice.objects.issued()) == 45_00 + 90_00
    amounts = [row[-1] for row in printed(invoice_of(lab, "2026-04"))]
    assert {"50.00", "-50.00"} <= set(amounts)
    assert prove()["pending"] == 0
