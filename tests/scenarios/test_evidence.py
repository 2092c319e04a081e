"""The evidence of an invoice: Ann computes it again on a laptop that has nothing of ours."""

from __future__ import annotations

import io
import itertools
import json
import tracemalloc
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from billing.catalog import plans
from billing.documents.line_jobs import jobs_of
from billing.invoicing import credit_notes
from billing.models import Invoice
from billing.rules.money import Money
from billing.rules.tiers import Graduated, Tier
from portal.core.tenants.models import Tenant
from portal.ops.cli import RefusedError
from tests import sharing, stories
from tests.builders import LONG_AGO, a_cluster, a_job, a_plan, a_tenant, ingest, own
from tests.configuring_terms import apply
from tests.evidence import agrees, bundle, changed, files_of, in_invoice, in_usage, rows_of, verified

pytestmark = pytest.mark.django_db


def a_lab(*, tiers: Graduated | None = None) -> Tenant:
    """With `tiers`, an H100 costs what they say."""
    cluster = a_cluster()
    prices = [
        ("gpu-hour", {"gpu_model": ["a100"]}, "1.337", LONG_AGO),
        ("gpu-hour", {"gpu_model": ["h100"]}, "3.10", LONG_AGO),
    ]
    plan = a_plan(prices=prices[:1] if tiers else prices)
    if tiers:
        plans.set_price(
            version=plan.versions.get(),
            meter="gpu-hour",
            where={"gpu_model": ["h100"]},
            model=tiers,
            valid_from=LONG_AGO,
        )
    tenant = a_tenant(plan=plan, tax_rate=Decimal(19), accounts=[(cluster, "vision")])
    own(tenant, cluster, "nlp", project="Translation")
    ingest(
        cluster,
        a_job(gpus=3, gpu_share=(1, 7), mig_profile="1g.5gb", ended="2026-03-02 13:07:11"),
        a_job(gpu_model="h100", gpus=8, job_id="17", source_key="17@1", ended="2026-03-03 04:00"),
        a_job(gpu_model="h100", gpus=2, account="nlp", user="zoe"),
        as_of="2026-05-01",
    )
    return tenant


begun, lab = sharing.fixtures(a_lab, "lab")


def test_an_invoice_is_recomputed_to_the_cent_with_nothing_of_ours(lab: Tenant, tmp_path: Path) -> None:
    stories.close("2026-03")
    invoice = stories.invoice_of(lab, "2026-03")
    text = agrees(bundle(invoice), tmp_path)
    assert text.startswith(
        f"{invoice.number}: 3 lines, 3 stretches of jobs, total 540.72 USD; signed with the key "
    )
    assert text.endswith(": agrees.\n")


def test_the_same_invoice_gives_the_same_bytes(lab: Tenant) -> None:
    stories.close("2026-03")
    invoice = stories.invoice_of(lab, "2026-03")
    assert bundle(invoice) == bundle(invoice)


def test_a_correction_on_the_next_invoice_is_recomputed_from_what_was_billed_before(
    lab: Tenant, tmp_path: Path
) -> None:
    stories.close("2026-03")
    longer = a_job(gpu_model="h100", gpus=8, job_id="17", source_key="17@1", ended="2026-03-03 05:01:01")
    april = a_job(gpu_model="h100", started="2026-04-05 10:00", ended="2026-04-05 11:00:07")
    ingest(a_cluster(), longer, april)
    stories.close("2026-04")
    invoice = stories.invoice_of(lab, "2026-04")
    assert invoice.lines.filter(correction=True).count() == 1
    assert verified(bundle(invoice), tmp_path)[0] == 0


def test_tiers_over_two_projects_are_recomputed(tmp_path: Path) -> None:
    lab = a_lab(tiers=Graduated((Tier(Decimal(50), Decimal(3)), Tier(None, Decimal("2.5")))))
    stories.close("2026-03")
    content = bundle(stories.invoice_of(lab, "2026-03"))
    agrees(content, tmp_path)

    def rounded_up(invoice: dict[str, Any]) -> None:
        """The part of each project, to the next cent."""
        for line in filter(lambda line: line["terms"], invoice["lines"]):
            terms = line["terms"]
            exact = terms["amount"] * Fraction(terms["own"]) / Fraction(terms["of"])
            line["amount"] = terms["share"] = ceil(exact)
        net = sum(line["amount"] for line in invoice["lines"])
        tax = (net * 19 + 50) // 100
        invoice["taxes"][0].update(net=net, tax=tax)
        invoice.update(subtotal=net, tax=tax, total=net + tax, due=net + tax)

    code, text = verified(changed(content, in_invoice(rounded_up)), tmp_path)
    assert code == 1
    assert "DIFFERS  the parts of all projects add up to 390.01 USD, their terms say 390.00 USD" in text


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda document: document.update(total=document["total"] + 1), "do not add up to"),
        (
            lambda document: document["lines"][0].update(amount=document["lines"][0]["amount"] + 1),
            "the line says",
        ),
        (lambda document: document["lines"][0].update(unit_price="1.4"), "the line says"),
        (lambda document: document["lines"][1].update(seconds="1"), "the line says 1"),
        (lambda document: document["taxes"][0].update(rate="20"), "the invoice says"),
    ],
)
def test_whoever_changes_a_figure_is_found_out_even_with_new_sums(
    lab: Tenant, tmp_path: Path, change: Callable[[dict[str, Any]], None], sentence: str
) -> None:
    stories.close("2026-03")
    content = changed(bundle(stories.invoice_of(lab, "2026-03")), in_invoice(change))
    code, text = verified(content, tmp_path)
    assert code == 1
    assert sentence in text
    assert "does not agree." in text


def test_a_job_less_is_found_out(lab: Tenant, tmp_path: Path) -> None:
    stories.close("2026-03")
    content = changed(bundle(stories.invoice_of(lab, "2026-03")), in_usage(lambda rows: rows.pop()))
    assert "its jobs held 0 seconds" in verified(content, tmp_path)[1]


def test_what_a_job_wrote_into_its_name_runs_in_no_spreadsheet(tmp_path: Path) -> None:
    cluster = a_cluster()
    lab = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(user='=HYPERLINK("http://evil")', job_id="@SUM(1)"), as_of="2026-04-02")
    stories.closed("2026-03", lab)
    content = bundle(stories.invoice_of(lab, "2026-03"))
    (row,) = rows_of(content)
    assert row["job"] == "'@SUM(1)"
    assert files_of(content)["people.csv"].decode().splitlines()[1:] == [
        f"""{row["person"]},"'=HYPERLINK(""http://evil"")""" + '"'
    ]
    assert verified(content, tmp_path)[0] == 0


def test_a_line_of_many_jobs_is_never_held_at_once() -> None:
    cluster = a_cluster()
    lab = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, *(a_job(ended="2026-03-02 10:00:36") for _ in range(6000)), as_of="2026-04-02")
    stories.closed("2026-03", lab)
    (line,) = stories.invoice_of(lab, "2026-03").lines.all()
    list(itertools.islice(jobs_of(line), 1))  # what is loaded once
    tracemalloc.start()
    try:
        count = sum(1 for _ in jobs_of(line))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 6000
    assert most < 1 << 20, most  # all at once are several


def test_what_is_no_bundle_is_said(lab: Tenant, tmp_path: Path) -> None:
    stories.close("2026-03")
    (tmp_path / "other.zip").write_bytes(b"PK nothing")
    code, text = verified(bundle(stories.invoice_of(lab, "2026-03")), tmp_path, "other.zip")
    assert code == 2
    assert text.startswith("This is no evidence of an invoice: ")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda document: document["lines"][0].update(unit_price="1e999999999"),
            "'1e999999999' is not written as numbers",
        ),
        (lambda document: document.update(decimals=10**9), "a currency of 1000000000 decimals"),
        (lambda document: document["lines"][0].pop("seconds"), "KeyError: 'seconds'"),
        (lambda document: document["lines"][0].update(seconds="1/0"), "ZeroDivisionError"),
        (lambda document: document.update(lines=None), "TypeError"),
    ],
)
def test_evidence_that_would_never_be_computed_is_refused_in_a_sentence(
    lab: Tenant, tmp_path: Path, change: Callable[[dict[str, Any]], None], sentence: str
) -> None:
    stories.close("2026-03")
    code, text = verified(changed(bundle(stories.invoice_of(lab, "2026-03")), in_invoice(change)), tmp_path)
    assert (code, text.startswith("This evidence is not whole, or was changed: ")) == (2, True)
    assert sentence in text


def test_a_credit_note_by_hand_has_a_bundle_of_its_own(lab: Tenant, tmp_path: Path) -> None:
    stories.close("2026-03")
    invoice = stories.invoice_of(lab, "2026-03")
    note = credit_notes.issue_credit_note(
        invoice=invoice, reason="Goodwill", by="op", on=date(2026, 4, 5), net=Money.of("5", "USD")
    )
    text = agrees(bundle(note), tmp_path)
    assert f"{note.number}: 3 lines, 0 stretches of jobs, total -5.95 USD" in text, text

    def more(document: dict[str, Any]) -> None:
        document["lines"][0]["amount"] = -1000_00

    text = verified(changed(bundle(note), in_invoice(more)), tmp_path)[1]
    assert f"1000.00 USD is taken back of line 1 of {invoice.number}, which billed" in text


def test_op_writes_it_to_a_file(lab: Tenant, tmp_path: Path) -> None:
    stories.close("2026-03")
    invoice = stories.invoice_of(lab, "2026-03")
    out = io.StringIO()
    with pytest.raises(RefusedError, match="is not ready: its PDF has not been rendered yet"):
        call_command("export_evidence", invoice.number, str(tmp_path / "march.zip"))
    assert not list(tmp_path.iterdir())
    bundle(invoice)
    call_command("export_evidence", invoice.number, str(tmp_path / "march.zip"), "--json", stdout=out)
    assert json.loads(out.getvalue())["bytes"] == (tmp_path / "march.zip").stat().st_size
    assert verified((tmp_path / "march.zip").read_bytes(), tmp_path)[0] == 0


TERMS = """
[[plan]]
name = "standard"
currency = "USD"
charges = ["gpu"]
from = 2026-01-01
allowance = [{ name = "Included", hours = "93", rollover = true }]
fee = [{ name = "Access", amount = "100.01" }, { name = "Support", amount = "31.00", in_advance = true }]
commitment = { amount = "77.77", overage_factor = "1.25" }
discount = [
  { name = "Welcome", percent = "33.333", from = 2026-03-10 },
  { name = "Flat", amount = "5.01", from = 2026-03-01 },
]
[[plan.price]]
meter = "gpu-hour"
where = { gpu_model = "a100" }
unit_price = "2.00"
allowance = "Included"
[[plan.price]]
meter = "gpu-hour"
where = { gpu_model = "h100" }
unit_price = "5.00"
allowance = "Included"

[[tenant]]
slug = "vision-lab"
name = "Vision Lab"
plan = "standard"
plan_from = 2026-03-06
corrections = "credit-note"
accounts = [{ cluster = "gpu1", account = "vision" }, { cluster = "gpu1", account = "nlp" }]
"""


def a_lab_on_terms() -> Tenant:
    """In March it used 60 hours on an A100 in two projects and 50 on an H100; in April 40 on an A100."""
    a_cluster(complete_through="2026-09-01")
    apply(TERMS)
    ingest(
        a_cluster(),
        a_job(gpus=20, started="2026-03-10 10:00", ended="2026-03-10 12:00", source_key="1@1"),
        a_job(gpus=20, account="nlp", started="2026-03-11 10:00", ended="2026-03-11 11:00"),
        a_job(gpus=50, gpu_model="h100", started="2026-03-12 10:00", ended="2026-03-12 11:00"),
        a_job(gpus=40, started="2026-04-12 10:00", ended="2026-04-12 11:00"),
    )
    stories.close("2026-03")
    return Tenant.objects.get()


def test_fees_commitments_allowances_and_discounts_are_recomputed_to_the_cent(tmp_path: Path) -> None:
    lab = a_lab_on_terms()
    march = stories.invoice_of(lab, "2026-03")
    code, text = verified(bundle(march), tmp_path)
    assert code == 0, text
    assert "count as they stand" not in text
    # 110 hours, of which 93 × 26/31 = 78 are included: all of the A100's and 18 of the H100's 50 hours, 160.00
    assert stories.printed(march)[:3] == [
        ("2026-03", "nlp", "20", "0.00"),
        ("2026-03", "vision", "40", "0.00"),
        ("2026-03", "vision", "50", "160.00"),
    ]


def test_terms_that_change_with_late_usage_are_recomputed_from_what_was_billed_before(tmp_path: Path) -> None:
    lab = a_lab_on_terms()
    ingest(
        a_cluster(),
        a_job(gpus=20, started="2026-03-10 10:00", ended="2026-03-10 11:00", source_key="1@1"),
        a_job(gpus=9, gpu_model="h100", account="nlp", started="2026-03-08 10:00", ended="2026-03-08 11:00"),
    )
    stories.close("2026-04")
    april = stories.invoice_of(lab, "2026-04")
    assert april.lines.filter(correction=True).exists()
    notes = Invoice.objects.filter(kind="credit-note")
    assert notes.exists()
    for document in (april, stories.invoice_of(lab, "2026-03"), *notes):
        agrees(bundle(document), tmp_path)


def _of(kind: str, **terms: Any) -> Callable[[dict[str, Any]], None]:
    def change(invoice: dict[str, Any]) -> None:
        next(line for line in invoice["lines"] if line["kind"] == kind)["terms"].update(terms)

    return change


def _of_allowance(**terms: Any) -> Callable[[dict[str, Any]], None]:
    def change(invoice: dict[str, Any]) -> None:
        for line in invoice["lines"]:
            if line["kind"] == "usage":
                line["terms"]["allowance"].update(terms)

    return change


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_of("fee", fee="100.02"), "line 4 (Access): comes to 83.89 USD, the line says 83.88 USD"),
        (_of("commitment", commitment="70"), "(Minimum commitment): comes to"),
        (_of("commitment", use=15_000), "(Minimum commitment): is of 160.00 USD, its terms say 150.00 USD"),
        (_of("discount", base=1), "(Welcome): is of"),
        (_of("discount", percent="50"), "(Welcome): comes to"),
        (_of_allowance(hours="124"), "the allowance Included includes 374400 seconds, its lines say 280800"),
        (_of_allowance(carried="3600"), "includes 284400 seconds, its lines say 280800"),
    ],
)
def test_whoever_changes_a_term_is_found_out(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], sentence: str
) -> None:
    lab = a_lab_on_terms()
    content = changed(bundle(stories.invoice_of(lab, "2026-03")), in_invoice(change))
    code, text = verified(content, tmp_path)
    assert code == 1
    assert sentence in text, text
