"""What Ann's accountant reads by machine: EN 16931, in the PDF and beside it."""

from __future__ import annotations

import io
import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from pypdf import PdfReader

from billing.documents import einvoice, issued, typesetting
from billing.documents.einvoice import EInvoiceError
from billing.invoicing import credit_notes, manual_lines
from billing.models import (
    InvoiceDocument,
    InvoiceTax,
    TaxRate,
)
from billing.rules.money import Money
from billing.tasks import render_document
from clusters.models import Cluster
from portal.core.outbox import outbox
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants.models import Tenant
from portal.ops.cli import RefusedError
from tests.builders import a_cluster, a_job, a_seller, ingest
from tests.einvoices import LAB, NORTH, a_public_buyer, rendered, xml_of
from tests.en16931 import XRECHNUNG, holds, read
from tests.evidence import bundle, files_of
from tests.stories import close, invoice_of


@pytest.fixture
def cluster(db: None) -> Cluster:
    return a_cluster(complete_through="2027-01-01")


@pytest.fixture
def lab(cluster: Cluster) -> Tenant:
    return a_public_buyer(cluster)


def test_an_invoice_states_what_its_pdf_shows(lab: Tenant) -> None:
    manual_lines.add_manual_line(
        tenant=lab,
        description="Goodwill",
        net=Money.of("-5.00", "EUR"),
        reason="Agreed.",
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
    assert top.text("//ram:GuidelineSpecifiedDocumentContextParameter/ram:ID") == XRECHNUNG
    lines = [
        (
            item.text(".//ram:SpecifiedTradeProduct/ram:Name"),
            item.text(".//ram:BilledQuantity"),
            item.text(".//ram:ChargeAmount"),
        )
        for item in top.all("//ram:IncludedSupplyChainTradeLineItem")
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
        note = credit_notes.issue_credit_note(
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
        assert top.text("//ram:SpecifiedTradeSettlementPaymentMeans/ram:TypeCode") == "1"  # none is defined
        assert not top.all("//ram:IBANID")
        assert not top.text("//ram:DueDateDateTime/udt:DateTimeString")  # but BR-CO-25 wants that, or terms
        assert top.text("//ram:SpecifiedTradePaymentTerms/ram:Description") == (
            "This amount is given back; nothing is to be paid."
        )


def test_corrections_at_another_rate_and_below_zero_are_lines_like_others(
    cluster: Cluster, lab: Tenant
) -> None:
    close("2026-03")
    ingest(
        cluster,
        a_job(account="vision", gpus=7, started="2026-03-20 10:00", ended="2026-03-20 10:01"),
        a_job(account="audio", gpus=99, started="2026-04-20 10:00", ended="2026-04-20 11:00"),
    )
    close("2026-04")
    xml = xml_of(invoice_of(lab, "2026-04"))
    holds(xml)
    rates = [tax.text("ram:RateApplicablePercent") for tax in read(xml).all("//ram:ApplicableTradeTax")]
    assert {"19", "21"} <= set(rates)
    ends = [
        read(xml).text(
            f"//ram:BillingSpecifiedPeriod[parent::ram:ApplicableHeaderTradeSettlement]/ram:{end}/*"
        )
        for end in ("StartDateTime", "EndDateTime")
    ]
    assert ends == ["20260301", "20260430"]  # what it bills of March lies within (R110)


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
    categories = read(xml).all(
        "//ram:ApplicableHeaderTradeSettlement/ram:ApplicableTradeTax/ram:CategoryCode"
    )
    assert [category.text(".") for category in categories] == [category]


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
    Tenant.objects.update(buyer_reference="", **of_lab)
    close("2026-03")
    march = invoice_of(lab, "2026-03")
    document = rendered(march)
    assert (document.einvoice, document.no_einvoice) == (None, sentence)
    assert not PdfReader(io.BytesIO(bytes(document.pdf))).attachments
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
    document = InvoiceDocument.objects.get(invoice=march)
    assert document.no_einvoice == ""
    holds(bytes(document.einvoice or b""))


# Where it is found


@pytest.mark.parametrize(
    ("reference", "name", "version", "level"),
    [
        ("", "factur-x.xml", "1.0", "EN 16931"),
        (LAB["buyer_reference"], "xrechnung.xml", "3.0", "XRECHNUNG"),
    ],
)
def test_the_pdf_carries_it_and_says_so(
    lab: Tenant, reference: str, name: str, version: str, level: str
) -> None:
    Tenant.objects.update(buyer_reference=reference)
    close("2026-03")
    march = invoice_of(lab, "2026-03")
    document = rendered(march)
    pdf = bytes(document.pdf)
    reader = PdfReader(io.BytesIO(pdf))
    assert dict(reader.attachments) == {name: [bytes(document.einvoice or b"")]}
    attached: Any = reader.root_object["/AF"]
    assert attached[0].get_object()["/AFRelationship"] == "/Alternative"
    metadata: Any = reader.root_object["/Metadata"].get_object()
    xmp = metadata.get_data().decode()
    for part in (
        f"<fx:Version>{version}</fx:Version><fx:ConformanceLevel>{level}</fx:ConformanceLevel>",
        f"<fx:DocumentFileName>{name}</fx:DocumentFileName>",
        "<pdfaid:part>3</pdfaid:part>",
        "<pdfaid:conformance>A</pdfaid:conformance>",
        "<pdfuaid:part>1</pdfuaid:part>",
    ):
        assert part in xmp, part
    assert issued.made(march).pdf == pdf  # the same document is the same bytes


def test_it_is_in_the_evidence_and_written_by_op_as_it_was_sent(lab: Tenant, tmp_path: Path) -> None:
    close("2026-03")
    march = invoice_of(lab, "2026-03")
    xml = xml_of(march)
    a_seller(**NORTH | {"name": "Renamed"})
    Tenant.objects.update(name="Renamed", country="")
    render_document(invoice_id=march.pk)

    assert files_of(bundle(march))["factur-x.xml"] == xml
    for name, content in (("march.xml", xml), ("march.pdf", bytes(march.document.pdf))):
        out = io.StringIO()
        call_command("export_invoice", march.number, str(tmp_path / name), "--json", stdout=out)
        assert (tmp_path / name).read_bytes() == content
        assert json.loads(out.getvalue())["einvoice"] is True
