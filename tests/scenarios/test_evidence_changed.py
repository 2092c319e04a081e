"""Whoever changes the evidence of an invoice so that its sums still fit is found out by the program in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import on_terms, stories
from tests.evidence import bundle, changed, in_invoice, verified
from tests.scenarios.test_evidence import a_lab, a_lab_on_terms
from tests.terms import GRADUATED, a_version

pytestmark = pytest.mark.django_db

Json = dict[str, Any]


def _untaxed(invoice: Json) -> None:
    invoice.update(taxes=[], tax=0, total=454_39, due=454_39)


def _taxed_in_part(invoice: Json) -> None:
    """Of 454.39 the 6.20 of the first line are left out, as if they were taxed at nothing."""
    invoice["lines"][0]["tax"] = ["Z", "0"]
    invoice["taxes"][0].update(net=448_19, tax=85_16)
    invoice.update(tax=85_16, total=539_55, due=539_55)


def test_an_invoice_whose_tax_was_taken_out_does_not_agree(tmp_path: Path) -> None:
    lab = a_lab()
    stories.close("2026-03")
    march = stories.invoice_of(lab, "2026-03")
    assert verified(bundle(march), tmp_path)[0] == 0
    code, text = verified(changed(bundle(march), in_invoice(_untaxed)), tmp_path)
    assert code == 1, text
    assert "DIFFERS  lines are taxed at 19 % (S), of which the invoice has no sum" in text
    assert "DIFFERS  taxes are of 0.00 USD together, the subtotal says 454.39 USD" in text


def test_an_invoice_of_which_a_part_is_not_taxed_any_more_does_not_agree(tmp_path: Path) -> None:
    lab = a_lab()
    stories.close("2026-03")
    march = stories.invoice_of(lab, "2026-03")
    code, text = verified(changed(bundle(march), in_invoice(_taxed_in_part)), tmp_path)
    assert code == 1, text
    assert "DIFFERS  lines are taxed at 0 % (Z), of which the invoice has no sum" in text


def _back_from_what_was_billed(invoice: Json) -> None:
    """5,000.00 more for 40 hours in tiers, as if 5,000.00 had been taken back of them before."""
    invoice["lines"][0]["terms"]["billed"] = -5000_00
    invoice["lines"][0]["amount"] = 5120_00
    invoice["taxes"][0]["net"] = 5120_00
    invoice.update(subtotal=5120_00, total=5120_00, due=5120_00)


def test_a_line_in_tiers_takes_off_what_documents_before_it_billed_and_nothing_else(tmp_path: Path) -> None:
    cluster, lab = on_terms.a_lab(a_version(GRADUATED))
    on_terms.used(cluster, 40)
    stories.closed("2026-03", lab)
    march = stories.invoice_of(lab, "2026-03")
    assert stories.total(march) == "120.00"
    assert verified(bundle(march), tmp_path)[0] == 0
    code, text = verified(changed(bundle(march), in_invoice(_back_from_what_was_billed)), tmp_path)
    assert code == 1, text
    assert "DIFFERS  line 1 (GPU time): 0.00 USD was billed before, its terms say -5000.00 USD" in text


def test_a_fee_says_what_documents_before_it_billed_and_nothing_else(tmp_path: Path) -> None:
    def more(invoice: Json) -> None:
        next(line for line in invoice["lines"] if line["kind"] == "fee")["terms"]["billed"] = 10_00

    lab = a_lab_on_terms()
    march = stories.invoice_of(lab, "2026-03")
    code, text = verified(changed(bundle(march), in_invoice(more)), tmp_path)
    assert code == 1, text
    assert "DIFFERS  line 4 (Access): 0.00 USD was billed before, its terms say 10.00 USD" in text
