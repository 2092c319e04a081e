"""What public buyers take: XRechnung 3.0.2, by the rules of those who publish it."""

from __future__ import annotations

import pytest
from lxml import etree

from billing.invoicing import month_close
from billing.models import InvoiceSeries
from portal.core.tenants.models import Tenant
from tests.builders import LATER, a_cluster, a_seller, at
from tests.einvoices import NORTH, a_public_buyer, xml_of
from tests.en16931 import holds, officially_broken, read
from tests.stories import close, invoice_of


@pytest.fixture
def lab(db: None) -> Tenant:
    return a_public_buyer(a_cluster(complete_through="2027-01-01"))


def test_it_says_what_a_public_buyer_routes_and_asks_by(lab: Tenant) -> None:
    close("2026-03")
    xml = xml_of(invoice_of(lab, "2026-03"))
    holds(xml)
    top = read(xml)
    (seller,), (buyer,) = top.all("//ram:SellerTradeParty"), top.all("//ram:BuyerTradeParty")
    assert top.text("//ram:BuyerReference") == "04011000-1234512345-06"
    assert top.text("//ram:BusinessProcessSpecifiedDocumentContextParameter/ram:ID") == (
        "urn:fdc:peppol.eu:2017:poacc:billing:01:1.0"
    )
    for party, postcode, city in ((seller, "20457", "Hamburg"), (buyer, "10115", "Berlin")):
        address = party.all("ram:PostalTradeAddress")[0]
        assert (address.text("ram:PostcodeCode"), address.text("ram:CityName")) == (postcode, city)
    contact = seller.all("ram:DefinedTradeContact")[0]
    assert [contact.text(f".//ram:{name}") for name in ("PersonName", "CompleteNumber", "URIID")] == [
        NORTH["contact_name"],
        NORTH["contact_phone"],
        NORTH["email"],
    ]
    assert [
        buyer.text(f"ram:URIUniversalCommunication/ram:URIID{at}") for at in ("", "[@schemeID='EM']")
    ] == [
        "ann@vision.example",
        "ann@vision.example",
    ]


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("//ram:BuyerReference", "BR-DE-15"),
        ("//ram:SellerTradeParty/ram:DefinedTradeContact", "BR-DE-2"),
        ("//ram:BuyerTradeParty/ram:PostalTradeAddress/ram:CityName", "BR-DE-8"),
        ("//ram:SpecifiedTradeSettlementPaymentMeans", "BR-DE-1"),
        ("//ram:BuyerTradeParty/ram:URIUniversalCommunication", "PEPPOL-EN16931-R010"),
        ("//ram:BuyerTradeParty/ram:Name", "BR-07"),
    ],
)
def test_the_publishers_rules_find_what_is_taken_out(lab: Tenant, path: str, rule: str) -> None:
    """They are asked, and not a copy of what this wants to hear."""
    close("2026-03")
    top = read(xml_of(invoice_of(lab, "2026-03")))
    (element,) = top.all(path)
    element.node.getparent().remove(element.node)
    assert [error for error in officially_broken(etree.tostring(top.node)) if rule in error]


def test_electronic_addresses_have_their_scheme(lab: Tenant) -> None:
    a_seller(**NORTH, electronic_address="9930:DE811234565")
    Tenant.objects.update(electronic_address="0204:04011000-1234512345-06", email="")
    close("2026-03")
    xml = xml_of(invoice_of(lab, "2026-03"))
    holds(xml)
    path = "//ram:{}TradeParty/ram:URIUniversalCommunication/ram:URIID[@schemeID='{}']"
    assert read(xml).text(path.format("Seller", "9930")) == "DE811234565"
    assert read(xml).text(path.format("Buyer", "0204")) == "04011000-1234512345-06"


def test_without_a_reference_it_is_en_16931(lab: Tenant) -> None:
    a_seller(**NORTH | {"contact_phone": "", "postcode": ""})
    Tenant.objects.update(buyer_reference="", city="")
    close("2026-03")
    xml = xml_of(invoice_of(lab, "2026-03"))
    holds(xml)
    top = read(xml)
    assert top.text("//ram:GuidelineSpecifiedDocumentContextParameter/ram:ID") == "urn:cen.eu:en16931:2017"
    assert not top.all("//ram:BuyerReference")


def test_a_fee_in_advance_lies_within_the_period_too(db: None) -> None:
    lab = a_public_buyer(a_cluster(complete_through="2027-01-01"), fee_in_advance=True)
    close("2026-03")
    xml = xml_of(invoice_of(lab, "2026-03"))
    holds(xml)
    path = "//ram:ApplicableHeaderTradeSettlement/ram:BillingSpecifiedPeriod/ram:{}/*"
    assert [read(xml).text(path.format(end)) for end in ("StartDateTime", "EndDateTime")] == [
        "20260301",
        "20260430",
    ]


def test_what_an_xrechnung_lacks_keeps_it_from_being_issued(lab: Tenant) -> None:
    a_seller(**NORTH | {"contact_phone": "", "postcode": ""})
    Tenant.objects.update(city=" ")
    (blocked,) = month_close.close_month(
        tenants=[lab], year=2026, month=3, moment=at("2026-04-02"), now=LATER
    )
    assert [block.code for block in blocked.blocks] == ["no-xrechnung"]
    assert blocked.reason == (
        "Vision Lab has a buyer reference, so that its invoices are XRechnungen, and these need the seller's post "
        "code, the seller's contact phone and the tenant's city: enter it in the administration or in a file for "
        "apply, or take the reference away."
    )
    assert not InvoiceSeries.objects.exists()  # no number is used up
    a_seller(**NORTH)
    Tenant.objects.update(city="Berlin")
    close("2026-03")
    holds(xml_of(invoice_of(lab, "2026-03")))


@pytest.mark.parametrize(
    ("field", "text", "name"),
    [("contact_phone", "n/a", "contact phone"), ("contact_name", "\N{ZERO WIDTH SPACE}", "contact name")],
)
def test_a_word_that_is_no_number_and_a_blank_that_nobody_sees_are_missing(
    lab: Tenant, field: str, text: str, name: str
) -> None:
    a_seller(**NORTH | {field: text})
    (blocked,) = month_close.close_month(
        tenants=[lab], year=2026, month=3, moment=at("2026-04-02"), now=LATER
    )
    assert f"these need the seller's {name}: enter it" in blocked.reason


@pytest.mark.parametrize(
    ("iban", "means"), [("DE89370400440532013000", "58"), ("DE00370400440532013000", "30"), ("", "68")]
)  # a transfer of SEPA, one to an account that is none of it; an online payment service
def test_by_which_means_it_is_paid(lab: Tenant, iban: str, means: str) -> None:
    a_seller(**NORTH | {"iban": iban})
    close("2026-03")
    xml = xml_of(invoice_of(lab, "2026-03"))
    holds(xml)
    assert read(xml).text("//ram:SpecifiedTradeSettlementPaymentMeans/ram:TypeCode") == means
