"""The evidence of invoices that correct what was billed, whatever was credited of it, before or after."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.catalog import version_terms
from billing.invoicing import credit_notes
from billing.invoicing.close_results import Outcome
from billing.models import Invoice
from billing.rules.money import Money
from portal.core.tenants.models import Corrections
from tests.builders import a_cluster, a_job, a_plan, a_tenant, ingest
from tests.evidence import bundle, changed, in_invoice, verified
from tests.on_terms import MARCH, a_lab, used
from tests.stories import closed, invoice_of
from tests.terms import TWO_DOLLARS, a_version

pytestmark = pytest.mark.django_db


def amounts(invoice: Invoice) -> list[tuple[str, str]]:
    return [
        (line.description, f"{Decimal(line.amount) / 100:.2f}") for line in invoice.lines.order_by("position")
    ]


def test_use_that_shrinks_below_what_was_credited_by_hand_is_recomputed(tmp_path: Path) -> None:
    """50 hours are billed, 30.00 of their 100.00 are credited, and then it turns out that it were 10 hours."""
    cluster = a_cluster(complete_through="2026-09-01")
    lab = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(source_key="7@1", started="2026-03-02 10:00", ended="2026-03-04 12:00"))
    closed("2026-03", lab)
    march = invoice_of(lab, "2026-03")
    credit_notes.issue_credit_note(
        invoice=march, reason="Goodwill", by="op", on=date(2026, 4, 5), net=Money.of("30.00", "USD")
    )
    ingest(cluster, a_job(source_key="7@1", started="2026-03-02 10:00", ended="2026-03-02 20:00"))
    used(cluster, 100, day="2026-04-20")
    closed("2026-04", lab)
    april = invoice_of(lab, "2026-04")
    assert amounts(april) == [
        ("GPU time", "200.00"),
        ("GPU time", "-70.00"),
        ("GPU time", "-10.00"),
        ("Credited before: GPU time", "10.00"),
    ]
    code, text = verified(bundle(april), tmp_path)
    assert code == 0, text

    def less(invoice: dict[str, list[dict[str, int]]]) -> None:
        invoice["lines"][2]["amount"] = -9_00

    text = verified(changed(bundle(april), in_invoice(less)), tmp_path)[1]
    assert text.count("DIFFERS  lines 2 and 3 (GPU time): come to -80.00 USD, they say -79.00 USD") == 1, text


def test_a_fee_that_a_later_close_gives_back_by_a_credit_note_alone_stays_on_its_invoice(
    tmp_path: Path,
) -> None:
    """Nothing is used between the closes of March and of April, and April has no invoice."""
    version = a_version(TWO_DOLLARS)
    version_terms.set_fee(version=version, name="Access", amount=Decimal(310))
    cluster, lab = a_lab(version)
    lab.corrections = Corrections.CREDIT_NOTE
    lab.save()
    used(cluster, 5)
    closed("2026-03", lab)
    march = invoice_of(lab, "2026-03")
    assert amounts(march) == [("GPU time", "10.00"), ("Access", "310.00")]

    version_terms.set_fee(version=version, name="Access", amount=Decimal(0), tenant=lab, valid_from=MARCH)
    assert closed("2026-04", lab).outcome == Outcome.CORRECTED

    note = Invoice.objects.get(kind="credit-note")
    assert (note.original, note.total, note.rated_through) == (march, -310_00, march.rated_through)
    code, text = verified(bundle(march), tmp_path)
    assert code == 0, text


@pytest.mark.parametrize(
    ("tax", "sentence"),
    [
        (0, "19 % of -30.00 USD is -5.70 USD, the invoice says 0.00 USD"),
        (-5_68, "19 % of -30.00 USD is -5.70 USD, the invoice says -5.68 USD"),
        (-5_69, ""),
    ],
    ids=["none", "two cents less", "a cent less, which is what is left of the invoice's"],
)
def test_the_tax_of_a_credit_note_is_that_of_what_it_takes_back(
    tax: int, sentence: str, tmp_path: Path
) -> None:
    cluster = a_cluster(complete_through="2026-09-01")
    lab = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")], tax_rate="19")
    used(cluster, 50)
    closed("2026-03", lab)
    note = credit_notes.issue_credit_note(
        invoice=invoice_of(lab, "2026-03"),
        reason="Goodwill",
        by="op",
        on=date(2026, 4, 5),
        net=Money.of("30.00", "USD"),
    )

    def other(invoice: dict[str, Any]) -> None:
        invoice["taxes"][0]["tax"] = invoice["tax"] = tax
        invoice["total"] = invoice["due"] = invoice["subtotal"] + tax

    code, text = verified(changed(bundle(note), in_invoice(other)), tmp_path)
    assert (code, sentence in text) == (1 if sentence else 0, True), text
