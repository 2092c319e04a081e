"""What is billed late for the first time corrects nothing, and is not called so."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal

import pytest
from django.core.management import call_command
from django.test import Client

from billing.catalog import plans, version_terms
from billing.documents import build
from billing.models import Invoice, Price
from billing.rating import engine
from billing.rules.meters import PerUnit
from portal.core.tenants.models import Corrections, Membership, Role, Tenant, User
from tests.builders import a_cluster, a_job, a_plan, a_seller, a_tenant, ingest
from tests.stories import closed, invoice_of, lines_of, prove

pytestmark = pytest.mark.django_db


def a_lab(policy: str = Corrections.NEXT_INVOICE) -> Tenant:
    """On a plan of 10.00 a month since January; March is the first month that is closed."""
    plan = a_plan("lab")
    version_terms.set_fee(version=plan.versions.get(), name="Base fee", amount=Decimal(10))
    cluster = a_cluster(complete_through="2026-09-01")
    a_seller()
    lab = a_tenant(plan=plan, plan_from=date(2026, 1, 1), accounts=[(cluster, "vision")], corrections=policy)
    ingest(cluster, a_job(source_key="7@1", started="2026-03-05 10:00", ended="2026-03-05 11:00"))
    return lab


def fee_lines(invoice: Invoice) -> list[tuple[str, str, int, bool]]:
    return [
        (f"{line.service_period.start:%m}", line.description, line.amount, line.corrects)
        for line in lines_of(invoice)
        if line.kind == "fee"
    ]


def test_fees_of_months_that_were_never_billed_are_no_corrections(capsys: pytest.CaptureFixture[str]) -> None:
    lab = a_lab()
    closed("2026-03", lab)
    march = invoice_of(lab, "2026-03")
    assert fee_lines(march) == [
        ("03", "Base fee", 1000, False),
        ("01", "Base fee", 1000, False),
        ("02", "Base fee", 1000, False),
    ]
    capsys.readouterr()
    call_command("show_invoices", "--json")
    lines = json.loads(capsys.readouterr().out)["invoices"][0]["lines"]
    assert [(line["correction"], line["first_charge"]) for line in lines if line["kind"] == "fee"] == [
        (False, False),
        (False, True),
        (False, True),
    ]
    prove()


def test_late_use_of_a_project_that_was_billed_is_a_correction() -> None:
    lab = a_lab()
    closed("2026-03", lab)
    ingest(a_cluster(), a_job(source_key="8@1", started="2026-03-06 10:00", ended="2026-03-06 12:00"))
    closed("2026-04", lab)
    (line,) = [line for line in lines_of(invoice_of(lab, "2026-04")) if line.kind == "usage"]
    assert (line.amount, line.corrects) == (400, True)


def test_a_price_that_changes_for_a_month_that_was_billed_charges_nothing_for_the_first_time() -> None:
    """The old price goes back and the new one comes: together they are the correction."""
    lab = a_lab()
    closed("2026-03", lab)
    price = Price.objects.get()
    plans.end_price(price=price, on=date(2026, 3, 2))
    plans.set_price(
        version=price.version,
        meter="gpu-hour",
        where={},
        model=PerUnit(Decimal(3)),
        valid_from=date(2026, 3, 2),
    )
    engine.rate_tenants([lab])
    closed("2026-04", lab)
    lines = [line for line in lines_of(invoice_of(lab, "2026-04")) if line.kind == "usage"]
    assert [(line.amount, line.corrects) for line in lines] == [(-200, True), (300, True)]


def test_an_invoice_of_first_charges_alone_is_not_called_one_of_corrections(client: Client) -> None:
    lab = a_lab(Corrections.OWN_INVOICE)
    closed("2026-03", lab)
    apart = Invoice.objects.get(kind="correction")
    assert build.document_of(apart).kind == "Invoice"
    ann = User.objects.create_user(email="ann@lab.example", password="correct horse")
    Membership.objects.create(tenant=lab, user=ann, role=Role.OWNER)
    client.force_login(ann)
    page = client.get(f"/t/{lab.slug}/invoices/{apart.number}/").content.decode()
    assert "for February 2026" in page
    assert "correction" not in page
