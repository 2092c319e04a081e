"""Whoever pays has periods of its own, in which more than one of whom it pays for may end."""

from __future__ import annotations

import pytest

from billing.invoicing.close_results import Outcome
from tests import builders
from tests.paying import pays
from tests.stories import close, closed, invoice_of, prove, total

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("payer_anchor", [29, 30])
def test_two_periods_of_a_tenant_that_end_within_one_of_its_payers_are_billed_on_one_invoice(
    payer_anchor: int,
) -> None:
    """From the 31st, January ends on the 31st and February on the 28th: both before the 29th of March."""
    cluster = builders.a_cluster(complete_through="2026-12-01")
    lab = builders.a_tenant("vision", plan=builders.a_plan(), anchor_day=31, accounts=[(cluster, "vision")])
    parent = builders.a_tenant("physics", anchor_day=payer_anchor)
    pays(parent, lab, "2025-06-01")
    for day in ("2026-01-15", "2026-02-05"):  # ten GPU-hours at 2.00 in each of the two
        builders.ingest(cluster, builders.a_job(started=f"{day} 00:00", ended=f"{day} 10:00"))
    close("2025-12", on="2026-04-03")

    close("2026-01", on="2026-04-03")

    lines = invoice_of(parent, "2026-01").lines.order_by("position")
    assert [(line.amount, line.correction, line.first_charge) for line in lines] == [(2000, False, False)] * 2
    assert total(invoice_of(parent, "2026-01")) == "40.00"
    assert closed("2026-01", parent, on="2026-04-03").outcome is Outcome.ALREADY
    close("2026-02", on="2026-04-03")
    prove()


def test_a_tenant_whose_anchor_moves_to_that_of_its_payer_has_two_periods_end_with_the_payers_month() -> None:
    cluster = builders.a_cluster(complete_through="2026-12-01")
    lab = builders.a_tenant("vision", plan=builders.a_plan(), anchor_day=15, accounts=[(cluster, "vision")])
    parent = builders.a_tenant("physics")
    pays(parent, lab, "2025-06-01")
    builders.ingest(cluster, builders.a_job(started="2025-12-20 00:00", ended="2025-12-20 10:00"))
    close("2025-12")
    lab.anchor_day = 1
    lab.save()
    builders.ingest(cluster, builders.a_job(started="2026-01-20 00:00", ended="2026-01-20 10:00"))

    close("2026-01")

    assert total(invoice_of(parent, "2026-01")) == "40.00"
    prove()
