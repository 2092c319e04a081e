"""What Ann's accountant reads by machine: EN 16931, in the PDF and beside it."""

from __future__ import annotations

import io
import json
import zipfile
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from hypothesis import given, settings
from hypothesis import strategies as st
from pypdf import PdfReader

from billing import crediting, manual, plan_terms, taxing
from billing.documents import einvoice, evidence, issued, typesetting
from billing.documents.einvoice import EInvoiceError
from billing.documents.typesetting import write_einvoice
from billing.models import (
    BillingPeriod,
    DocumentKind,
    Invoice,
    InvoiceDocument,
    InvoiceLine,
    InvoiceTax,
    LineKind,
    TaxRate,
)
from billing.rules import supply
from billing.rules import tax as tax_rules
from billing.rules.money import Money
from billing.rules.pricing import PerUnit
from billing.tasks import render_document
from clusters.models import Cluster
from portal.ops.cli import RefusedError
from portal.outbox import outbox
from portal.outbox.models import OutboxMessage
from portal.tenants.models import Tenant
from tests.builders import a_cluster, a_job, a_seller, a_tenant, own, take_in
from tests.en16931 import broken, officially_broken, read
from tests.stories import close, invoice_of
from tests.terms import GRADUATED, a_version
from tests.tiers import examples

NORTH = {
    "country": "DE",
    "vat_id": "DE811234565",
    "registration": "HRB 1234 Hamburg",
    "email": "billing@north.example",
    "iban": "DE89370400440532013000",
    "bic": "COBADEFFXXX",
}
LAB = {"country": "DE", "tax_treatment": "by-country", "address": "Gate 1\n10115 Berlin"}
LAB["email"] = "ann@vision.example"


@pytest.fixture
def cluster(db: None) -> Cluster:
    return a_cluster(complete_through="2027-01-01")


@pytest.fixture
def lab(cluster: Cluster) -> Tenant:
    """On tiers over two projects, with a fee and a discount: a third of a GPU-hour and 150 hours in March, at 19 %."""
    a_seller(**NORTH)
    TaxRate.objects.create(country="DE", rate=19, since=date(2021, 1, 1))
    TaxRate.objects.create(country="DE", rate=21, since=date(2026, 4, 1))
    version = a_version(GRADUATED, currency="EUR", effective_from=date(2026, 3, 1))
    plan_terms.set_fee(version=version, name="Support", amount=Decimal("99.00"))
    plan_terms.set_discount(version=version, name="Partner", percent=Decimal(10), valid_from=date(2026, 3, 1))
    told: dict[str, Any] = dict(LAB)
    lab = a_tenant(plan=version.plan, plan_from=date(2026, 3, 1), accounts=[(cluster, "vision")], **told)
    own(lab, cluster, "audio")
    take_in(
        cluster,
        a_job(account="vision", started="2026-03-10 10:00", ended="2026-03-10 10:20"),
        a_job(account="audio", gpus=150, started="2026-03-11 10:00", ended="2026-03-11 11:00"),
    )
    return lab


def rendered(invoice: Invoice) -> InvoiceDocument:
    render_document(invoice_id=invoice.pk)
    return InvoiceDocument.objects.get(invoice=invoice)


def xml_of(invoice: Invoice) -> bytes:
    kept = rendered(invoice)
    assert kept.einvoice is not None, kept.no_einvoice
    return bytes(kept.einvoice)


def holds(xml: bytes) -> None:
    """Every rule does; those of the standard's publishers too, where there is a program for them."""
    assert broken(xml) == [], xml.decode()
    if find_spec("saxonche"):
        assert officially_broken(xml) == [], xml.decode()


def test_an_invoice_states_what_its_pdf_shows(lab: Tenant) -> None:
    manual.add(
        tenant=lab,
        description="Goodwill",
        net=Money.of("-5.00", "EUR"),
        why="Agreed.",
        by="op",
        on=date(2026, 3, 30),
    )
    close("2026-03")
    march = invoice_of(lab, "2026-03")
    xml = xml_of(march)

    holds(xml)
    top = read(xml)
    assert top.text("//rsm:ExchangedDocument/ram:ID") == march.number
    assert top.text("//rsm:ExchangedDocument/ram:TypeCode") == "380"
    assert top.text("//ram:GuidelineSpecifiedDocumentContextParameter/ram:ID") == "urn:cen.eu:en16931:2017"
    lines = [
        (
            each.text(".//ram:SpecifiedTradeProduct/ram:Name"),
            each.text(".//ram:BilledQuantity"),
            each.text(".//ram:ChargeAmount"),
        )
        for each in top.all("//ram:IncludedSupplyChainTradeLineItem")
    ]
    assert lines[-3:] == [("Support", "1", "99.00"), ("Partner", "-1", "52.48"), ("Goodwill", "-1", "5.00")]
    assert [
        top.text(f"//ram:{name}") for name in ("TaxBasisTotalAmount", "TaxTotalAmount", "DuePayableAmount")
    ] == [
        "467.35",
        "88.80",
        "556.15",
    ]
    assert top.text("//ram:IBANID") == NORTH["iban"]


def test_a_credit_note_states_above_zero_what_it_gives_back(lab: Tenant) -> None:
    close("2026-03")
    march = invoice_of(lab, "2026-03")
    for net in ("0.33", "0.33", "100.00"):
        note = crediting.credit(
            invoice=march,
            reason="The queue was down.",
            by="op",
            on=date(2026, 4, 9),
            net=Money.of(net, "EUR"),
        )
        xml = xml_of(note)
        holds(xml)
        top = read(xml)
        assert top.text("//rsm:ExchangedDocument/ram:TypeCode") == "381"
        assert top.text("//ram:InvoiceReferencedDocument/ram:IssuerAssignedID") == march.number
        assert top.text("//ram:TaxBasisTotalAmount") == net
        assert top.text("//ram:IncludedNote/ram:Content") == "The queue was down."
        assert not top.text("//ram:DueDateDateTime/udt:DateTimeString")  # but BR-CO-25 wants that, or terms
        assert top.text("//ram:SpecifiedTradePaymentTerms/ram:Description") == (
            "This amount is given back; nothing is to be paid."
        )


def test_corrections_at_another_rate_and_below_zero_are_lines_like_others(
    cluster: Cluster, lab: Tenant
) -> None:
    close("2026-03")
    take_in(
        cluster,
        a_job(account="vision", gpus=7, started="2026-03-20 10:00", ended="2026-03-20 10:01"),
        a_job(account="audio", gpus=99, started="2026-04-20 10:00", ended="2026-04-20 11:00"),
    )
    close("2026-04")
    xml = xml_of(invoice_of(lab, "2026-04"))
    holds(xml)
    rates = [tax.text("ram:RateApplicablePercent") for tax in read(xml).all("//ram:ApplicableTradeTax")]
    assert {"19", "21"} <= set(rates)


@pytest.mark.parametrize(
    ("fields", "category"),
    [
        ({"country": "FR", "vat_id": "FR40303265045"}, "AE"),
        ({"country": "CH"}, "G"),
        ({"tax_treatment": "exempt", "tax_reason": "Exempt: Article 132(1)(f)."}, "E"),
        ({"tax_treatment": "outside"}, "O"),
        ({"tax_treatment": ""}, "Z"),
    ],
)
def test_each_category_keeps_its_rules(lab: Tenant, fields: dict[str, str], category: str) -> None:
    Tenant.objects.update(**fields)
    close("2026-03")
    xml = xml_of(invoice_of(lab, "2026-03"))
    holds(xml)
    found = read(xml).all("//ram:ApplicableHeaderTradeSettlement/ram:ApplicableTradeTax/ram:CategoryCode")
    assert [each.text(".") for each in found] == [category]


def test_sales_tax_in_the_us_by_the_sellers_own_number(lab: Tenant) -> None:
    a_seller(country="US", vat_id="", registration="EIN 12-3456789")
    TaxRate.objects.create(country="US", region="CA", rate=Decimal("7.25"), since=date(2017, 1, 1))
    Tenant.objects.update(country="US", region="CA")
    close("2026-03")
    holds(xml_of(invoice_of(lab, "2026-03")))


@pytest.mark.parametrize(
    ("of_seller", "of_lab", "sentence"),
    [
        (
            {},
            {"country": "", "tax_treatment": ""},
            "The tenant had no country when it was issued: give it a `country`.",
        ),
        (
            {"country": ""},
            {"tax_treatment": ""},
            "The seller had no country when it was issued: give it a `country`.",
        ),
        (
            {"registration": ""},
            {"tax_treatment": "outside"},
            "The seller had no registration that it is known by: give it a `registration`.",
        ),
        *(
            (
                {"country": "US", "registration": "", "vat_id": number},
                {"tax_treatment": "", "tax_rate": 7},
                "The seller had no registration that it is known by: give it a `registration`.",
            )
            for number in ("12-3456789", "QQ123456789")
        ),
    ],
)
def test_what_cannot_be_stated_has_a_plain_pdf_and_a_reason(
    lab: Tenant, tmp_path: Path, of_seller: dict[str, str], of_lab: dict[str, Any], sentence: str
) -> None:
    a_seller(**NORTH | of_seller)
    Tenant.objects.update(**of_lab)
    close("2026-03")
    march = invoice_of(lab, "2026-03")
    kept = rendered(march)
    assert (kept.einvoice, kept.no_einvoice) == (None, sentence)
    assert not PdfReader(io.BytesIO(bytes(kept.pdf))).attachments
    with pytest.raises(RefusedError, match=sentence):
        call_command("export_invoice", march.number, str(tmp_path / "march.xml"))
    assert not list(tmp_path.iterdir())


def test_thousandths_and_nothing_at_all_are_refused(lab: Tenant) -> None:
    close("2026-03")
    march = invoice_of(lab, "2026-03")
    lines, taxes = list(march.lines.select_related("service_period")), list(march.taxes.all())
    with pytest.raises(EInvoiceError, match="EN 16931 has no invoice without a line"):
        einvoice.terms_of(march, [], taxes)
    with pytest.raises(EInvoiceError, match="nothing taxed beside"):
        einvoice.terms_of(march, lines, [*taxes, InvoiceTax(category="O", rate=0, net=0, tax=0)])
    march.currency = "KWD"
    with pytest.raises(EInvoiceError, match="amounts of two decimals, and KWD has more"):
        einvoice.terms_of(march, lines, taxes)


def test_a_typesetter_that_dies_over_it_is_asked_again(lab: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    close("2026-03")
    march = invoice_of(lab, "2026-03")
    typesetting.close()
    with monkeypatch.context() as broken_machine:
        broken_machine.setattr("sys.executable", "/bin/false")
        outbox.drain()
        assert (
            not InvoiceDocument.objects.exists()
        )  # neither without its e-invoice, nor saying that it has none
    OutboxMessage.objects.update(available_at=march.period_end)
    outbox.drain()
    kept = InvoiceDocument.objects.get(invoice=march)
    assert kept.no_einvoice == ""
    holds(bytes(kept.einvoice or b""))


# Where it is found


def test_the_pdf_carries_it_and_says_so(lab: Tenant) -> None:
    close("2026-03")
    march = invoice_of(lab, "2026-03")
    kept = rendered(march)
    pdf = bytes(kept.pdf)
    reader = PdfReader(io.BytesIO(pdf))
    assert dict(reader.attachments) == {"factur-x.xml": [bytes(kept.einvoice or b"")]}
    attached: Any = reader.root_object["/AF"]
    assert attached[0].get_object()["/AFRelationship"] == "/Alternative"
    metadata: Any = reader.root_object["/Metadata"].get_object()
    told = metadata.get_data().decode()
    for part in (
        "<fx:ConformanceLevel>EN 16931</fx:ConformanceLevel>",
        "<fx:DocumentFileName>factur-x.xml</fx:DocumentFileName>",
        "<pdfaid:part>3</pdfaid:part>",
        "<pdfaid:conformance>A</pdfaid:conformance>",
        "<pdfuaid:part>1</pdfuaid:part>",
    ):
        assert part in told, part
    assert issued.made(march).pdf == pdf  # the same document is the same bytes


def test_it_is_in_the_evidence_and_written_by_op_as_it_was_sent(lab: Tenant, tmp_path: Path) -> None:
    close("2026-03")
    march = invoice_of(lab, "2026-03")
    xml = xml_of(march)
    a_seller(**NORTH | {"name": "Renamed"})
    Tenant.objects.update(name="Renamed", country="")
    render_document(invoice_id=march.pk)

    with zipfile.ZipFile(io.BytesIO(b"".join(evidence.bundle(march)))) as files:
        assert files.read("factur-x.xml") == xml
    for name, told in (("march.xml", xml), ("march.pdf", bytes(march.document.pdf))):
        out = io.StringIO()
        call_command("export_invoice", march.number, str(tmp_path / name), "--json", stdout=out)
        assert (tmp_path / name).read_bytes() == told
        assert json.loads(out.getvalue())["einvoice"] is True


# Whatever a document is made of

MARCH = BillingPeriod(
    pk=1, start=datetime(2026, 3, 1, tzinfo=UTC), end=datetime(2026, 4, 1, tzinfo=UTC), timezone="UTC"
)
TAXES = st.sampled_from(
    [
        tax_rules.Tax(name, Decimal(rate))
        for name, rate in (("S", "19"), ("S", "7.7"), ("AE", "0"), ("E", "0"), ("G", "0"))
    ]
)


@st.composite
def lines(draw: st.DrawFn, currency: str) -> InvoiceLine:
    """Usage at a price, the rest of it after what was billed, a share of it, or an amount alone; of any sign."""
    kind = draw(
        st.sampled_from([LineKind.USAGE, LineKind.FEE, LineKind.DISCOUNT, LineKind.MANUAL, LineKind.CREDIT])
    )
    taxed = draw(TAXES)
    line = InvoiceLine(
        kind=kind, description=draw(st.text(max_size=20)), project="vision", service_period=MARCH,
        seconds_num=Decimal(0), seconds_den=1, tax_category=taxed.category, tax_rate=taxed.rate,
        amount=draw(st.integers(min_value=-(10**9), max_value=10**9)),
    )  # fmt: skip
    if kind == LineKind.USAGE:
        seconds = draw(st.fractions(min_value=-(10**8), max_value=10**8, max_denominator=7))
        price = draw(st.decimals(min_value=0, max_value=1000, places=draw(st.sampled_from([0, 2, 4, 7]))))
        line.seconds_num, line.seconds_den = Decimal(seconds.numerator), seconds.denominator
        line.unit, line.unit_price = "GPU-hour", draw(st.sampled_from([price, None]))
        exact = PerUnit(price).amount(abs(seconds), currency).rounded().minor
        line.amount = (exact if seconds >= 0 else -exact) + draw(st.integers(min_value=-1, max_value=1))
    return line


@st.composite
def documents(draw: st.DrawFn) -> tuple[Invoice, list[InvoiceLine], list[InvoiceTax]]:
    currency = draw(st.sampled_from(["EUR", "JPY"]))
    made = draw(st.lists(lines(currency), min_size=1, max_size=8))
    for position, line in enumerate(made, start=1):
        line.position = position
    kind = draw(st.sampled_from([DocumentKind.INVOICE, DocumentKind.CREDIT_NOTE]))
    taxes = taxing.rows(made, currency)
    party = {
        "address": "Gate 1\n10115 Berlin",
        "email": "",
        "name": "N",
        "registration": "HRB 1",
        "iban": "",
        "bic": "",
    }
    invoice = Invoice(
        kind=kind, number="NC-1", currency=currency, issued_on=date(2026, 4, 3), due_on=date(2026, 4, 17),
        period_start=MARCH.start, period_end=MARCH.end, timezone="UTC", reason="Why.",
        seller=party | {"country": "DE", "vat_id": "DE811234565"},
        buyer=party | {"country": "FR", "vat_id": "FR40303265045", "slug": "lab", "purchase_order": ""},
        subtotal=sum(row.net.minor for row in taxes), tax=sum(row.tax.minor for row in taxes),
    )  # fmt: skip
    invoice.total = invoice.subtotal + invoice.tax
    invoice.prepaid = draw(st.sampled_from([0, invoice.total, invoice.total // 2]))
    rows = [
        InvoiceTax(
            category=row.kind.category, rate=row.kind.rate, net=row.net.minor, tax=row.tax.minor,
            reason=supply.REASONS.get(row.kind.category, ""),
        )
        for row in taxes
    ]  # fmt: skip
    return invoice, made, rows


@settings(max_examples=examples(25, 500))
@given(documents())
def test_the_rules_hold_for_any_document(told: tuple[Invoice, list[InvoiceLine], list[InvoiceTax]]) -> None:
    assert broken(write_einvoice(einvoice.terms_of(*told))) == []
