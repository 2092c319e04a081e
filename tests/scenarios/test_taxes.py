"""Ann's lab is taxed by where it is and when it was served; Op lists the rates."""

from __future__ import annotations

import io
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from pypdf import PdfReader

from billing.documents import build, pdf
from billing.invoicing import credit_notes
from billing.invoicing.month_close import Outcome
from billing.models import DocumentKind, Invoice, TaxRate
from clusters.models import Cluster
from portal.core.tenants.models import Corrections, Tenant
from tests.builders import a_cluster, a_job, a_plan, a_seller, a_tenant, ingest
from tests.evidence import bundle
from tests.scenarios.configuring import PHILLY, Op
from tests.stories import close, closed, invoice_of, lines_of, prove, total

pytestmark = pytest.mark.django_db

NORTH = {"country": "DE", "vat_id": "DE811234565"}
FRENCH = {"country": "FR", "vat_id": "FR40303265045"}


def rate(per_cent: str, since: str, country: str = "DE", region: str = "") -> TaxRate:
    return TaxRate.objects.create(
        country=country, region=region, rate=Decimal(per_cent), since=date.fromisoformat(since)
    )


def a_lab(slug: str = "vision-lab", **fields: str) -> tuple[Cluster, Tenant]:
    """A lab at 100.00 per GPU-hour that is taxed by country, in Germany unless said otherwise."""
    cluster = a_cluster(complete_through="2027-01-01")
    plan = a_plan(f"of-{slug}", "EUR", prices=[("gpu-hour", {}, "100.00", date(2017, 1, 1))])
    values: dict[str, Any] = {"tax_treatment": "by-country", "country": "DE", **fields}
    return cluster, a_tenant(slug, plan=plan, accounts=[(cluster, slug)], **values)


def used(cluster: Cluster, tenant: Tenant, day: str, gpus: int = 1) -> None:
    """So many GPUs for an hour of that day."""
    ingest(cluster, a_job(account=tenant.slug, gpus=gpus, started=f"{day} 10:00", ended=f"{day} 11:00"))


def taxes(invoice: Invoice) -> list[tuple[str, str, int, int]]:
    """Each tax as (category, rate, net, tax), in cents."""
    rows = invoice.taxes.order_by("-rate", "category")
    return [(row.category, f"{row.rate.normalize():f}", row.net, row.tax) for row in rows]


def test_case_063_the_last_day_of_the_service_decides_on_its_rate() -> None:
    a_seller(**NORTH)
    rate("19", "2021-01-01")
    rate("21", "2026-04-01")
    cluster, lab = a_lab()
    for day in ("2026-03-20", "2026-04-20"):
        used(cluster, lab, day)
    close("2026-03", on="2026-04-03")  # issued in April, served in March
    assert taxes(invoice_of(lab, "2026-03")) == [("S", "19", 10000, 1900)]
    used(cluster, lab, "2026-03-21", gpus=2)  # found late
    close("2026-04")

    april = invoice_of(lab, "2026-04")
    assert [(line.correction, str(line.tax_rate)) for line in lines_of(april)] == [
        (False, "21.000"),
        (True, "19.000"),
    ]
    assert taxes(april) == [("S", "21", 10000, 2100), ("S", "19", 20000, 3800)]
    assert total(april) == "359.00"
    prove()


def test_case_063_a_period_across_the_change_has_the_rate_of_its_last_day() -> None:
    a_seller(**NORTH)
    rate("19", "2021-01-01")
    rate("21", "2026-04-01")
    cluster, lab = a_lab()
    Tenant.objects.update(anchor_day=15)
    used(cluster, lab, "2026-03-20")
    close("2026-03", on="2026-04-20")
    assert taxes(invoice_of(lab, "2026-03")) == [("S", "21", 10000, 2100)]


def test_case_063_a_credit_note_has_its_invoices_rate_and_reason() -> None:
    a_seller(**NORTH)
    rate("19", "2021-01-01")
    cluster, lab = a_lab()
    _, french = a_lab("paris-lab", **FRENCH)
    for tenant in (lab, french):
        used(cluster, tenant, "2026-03-20")
    close("2026-03")
    rate("21", "2026-03-01")
    Tenant.objects.filter(pk=french.pk).update(tax_treatment="exempt", tax_reason="Another reason.")

    notes = [
        credit_notes.issue_credit_note(
            invoice=invoice_of(tenant, "2026-03"), reason="Broken.", by="op", on=date(2026, 4, 9)
        )
        for tenant in (lab, french)
    ]

    assert [taxes(note) for note in notes] == [
        [("S", "19", -10000, -1900)],
        [("AE", "0", -10000, 0)],
    ]
    assert "Reverse charge: the recipient is liable" in notes[1].taxes.get().reason


def test_case_063_corrections_by_credit_note_keep_what_they_take_back_from() -> None:
    a_seller(**NORTH)
    cluster, french = a_lab("paris-lab", **FRENCH, corrections=Corrections.CREDIT_NOTE)
    job = {"account": "paris-lab", "source_key": "1", "started": "2026-03-20 10:00"}
    ingest(cluster, a_job(**job, ended="2026-03-20 12:00"))
    close("2026-03")
    Tenant.objects.update(tax_treatment="", tax_rate=19)
    ingest(cluster, a_job(**job, ended="2026-03-20 11:00"))
    used(cluster, french, "2026-04-20")
    close("2026-04")

    note = Invoice.objects.get(kind=DocumentKind.CREDIT_NOTE)
    assert taxes(note) == [("AE", "0", -10000, 0)]
    assert taxes(invoice_of(french, "2026-04")) == [("S", "19", 10000, 1900)]


def test_reverse_charge_stands_on_page_and_pdf_with_both_vat_ids() -> None:
    a_seller(**NORTH)
    cluster, french = a_lab("paris-lab", **FRENCH, address="1 rue de Rivoli\n75001 Paris")
    used(cluster, french, "2026-03-20")
    close("2026-03")
    march = invoice_of(french, "2026-03")
    assert taxes(march) == [("AE", "0", 10000, 0)]

    document = build.document_of(march)
    assert document.taxes == (("VAT 0% (reverse charge)", "€0.00"),)
    shown = PdfReader(io.BytesIO(pdf.render(document))).pages[0].extract_text()
    text = " ".join(shown.split())
    for sentence in (
        "Reverse charge: the recipient is liable for the VAT (Article 196 of Directive 2006/112/EC).",
        "DE811234565",
        "FR40303265045",
        "75001 Paris France",
        "20457 Hamburg Germany",
    ):
        assert sentence in text, sentence
    assert bundle(march)


def test_a_missing_rate_blocks_its_tenant_alone_until_it_is_listed() -> None:
    a_seller(**NORTH)
    cluster, spanish = a_lab("madrid-lab", country="ES")
    _, lab = a_lab()
    rate("19", "2021-01-01")
    for tenant in (spanish, lab):
        used(cluster, tenant, "2026-03-20")

    outcomes = {outcome.tenant: outcome for outcome in close("2026-03")}

    assert outcomes["vision-lab"].outcome is Outcome.ISSUED
    assert outcomes["madrid-lab"].outcome is Outcome.BLOCKED
    assert outcomes["madrid-lab"].reason == (
        "How madrid-lab is taxed cannot be told: no rate of ES for 'standard' holds on 2026-03-31: add it as "
        "[[tax_rate]] or under Tax rates in the administration."
    )
    rate("21", "2012-09-01", "ES")
    assert closed("2026-03", spanish).outcome is Outcome.ISSUED
    assert total(invoice_of(spanish, "2026-03")) == "121.00"  # without a VAT id, at the rate of its country


def test_exports_have_no_tax_and_say_why() -> None:
    a_seller(**NORTH)
    cluster, swiss = a_lab("basel-lab", country="CH")
    used(cluster, swiss, "2026-03-20")
    close("2026-03")
    row = invoice_of(swiss, "2026-03").taxes.get()
    assert (row.category, row.tax) == ("G", 0)
    assert row.reason.startswith("Supplied to a recipient outside the EU")


def test_sales_tax_of_a_state_that_is_listed_and_of_one_that_is_not() -> None:
    a_seller(country="US", tax_name="Sales tax")
    rate("7.25", "2017-01-01", "US", "CA")
    cluster, west = a_lab("west-lab", country="US", region="CA")
    _, north = a_lab("north-lab", country="US", region="OR")
    for tenant in (west, north):
        used(cluster, tenant, "2026-03-20")
    close("2026-03")
    assert taxes(invoice_of(west, "2026-03")) == [("S", "7.25", 10000, 725)]
    assert build.document_of(invoice_of(west, "2026-03")).taxes == (("Sales tax 7.25%", "€7.25"),)
    assert taxes(invoice_of(north, "2026-03")) == [("O", "0", 10000, 0)]


def test_an_exemption_says_why_and_keeps_its_words() -> None:
    a_seller(**NORTH)
    cluster, lab = a_lab(tax_treatment="exempt", tax_reason="Exempt: Article 132(1)(f).")
    used(cluster, lab, "2026-03-20")
    close("2026-03")
    Tenant.objects.update(tax_reason="Exempt: another article.")
    march = invoice_of(lab, "2026-03")
    assert (taxes(march), march.taxes.get().reason) == ([("E", "0", 10000, 0)], "Exempt: Article 132(1)(f).")
    assert build.document_of(march).legal == ("Exempt: Article 132(1)(f).",)


def test_a_rate_of_its_own_needs_no_country_as_before() -> None:
    a_seller()
    cluster, lab = a_lab(tax_treatment="", country="")
    Tenant.objects.update(tax_rate=Decimal(19))
    used(cluster, lab, "2026-03-20")
    close("2026-03")
    assert taxes(invoice_of(lab, "2026-03")) == [("S", "19", 10000, 1900)]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"tax_treatment": "exempt"}, "tenant_exemption_says_why"),
        ({"tax_treatment": "reverse-charge"}, "tenant_of_reverse_charge_has_country_and_vat_id"),
        ({"tax_treatment": "none"}, "tenant_tax_treatment_is_known"),
        ({"country": "de"}, "tenant_country_is_two_letters"),
    ],
)
def test_the_database_refuses_it_too(fields: dict[str, str], name: str) -> None:
    a_tenant()
    with pytest.raises(IntegrityError, match=name), transaction.atomic():
        Tenant.objects.update(**fields)


# What files say


@pytest.fixture
def op(tmp_path: Path) -> Op:
    return Op(tmp_path)


RATES = """
[seller]
name = "Northern Compute GmbH"
country = "DE"
vat_id = "DE811234565"

[[tax_rate]]
country = "DE"
rate = "19"
from = 2021-01-01

[[tax_rate]]
country = "US"
region = "CA"
rate = "7.25"
from = 2017-01-01
"""


def of_lab(text: str) -> str:
    return RATES + PHILLY + text


def test_a_file_lists_rates_and_says_how_its_tenants_are_taxed(op: Op) -> None:
    text = of_lab('tax_treatment = "by-country"\ncountry = "FR"\nvat_id = "FR40303265045"\n')
    changes = op.applies(text)
    assert "tax rate DE standard from 2021-01-01: new (rate 19 %)" in changes
    assert "tax rate US-CA standard from 2017-01-01: new (rate 7.25 %)" in changes
    assert op.applies(text) == ["Nothing to change."]
    assert op.applies(text.replace('"7.25"', '"7.5"')) == [
        "tax rate US-CA standard from 2017-01-01: rate 7.25 % -> 7.5 %"
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            'tax_treatment = "reverse-charge"\ncountry = "FR"',
            (
                'tenant "vision-lab": reverse charge is for a seller and a tenant in different states of the EU, '
                "both with a VAT id: give both a `country` and a `vat_id`, or another tax_treatment."
            ),
        ),
        (
            'tax_treatment = "exempt"',
            ('tenant "vision-lab": an exemption stands on invoices with its reason: give it a `tax_reason`.'),
        ),
        (
            'country = "FR"\nvat_id = "FR1"',
            (
                "tenant \"vision-lab\": its vat_id is 'FR1', which is no VAT id of FR: its form or its check "
                "digits do not fit."
            ),
        ),
        (
            'country = "France"',
            (
                "tenant \"vision-lab\": country is 'France': write the two letters of ISO 3166-1, such as DE "
                "or US."
            ),
        ),
        (
            '[[tax_rate]]\ncountry = "DE"\nrate = "101"\nfrom = 2026-01-01',
            'tax_rate "DE": rate is 101; it is a percentage from 0 to 100 with at most three decimals.',
        ),
        (
            '[[tax_rate]]\ncountry = "DE"\nrate = "16"\nfrom = 2021-01-01',
            'tax_rate "DE standard from 2021-01-01" stands in the file twice.',
        ),
    ],
)
def test_what_cannot_be_is_refused_whole(op: Op, text: str, sentence: str) -> None:
    assert op.is_refused(of_lab(text)) == [sentence]
    assert not TaxRate.objects.exists()
