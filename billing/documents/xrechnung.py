"""XRechnung 3.0, which public buyers in Germany take: EN 16931 with more that has to be said.

A tenant with a buyer reference gets it. What it wants (rules BR-DE-1 to BR-DE-28 and PEPPOL-EN16931-R001 to R130) and
nobody has entered keeps an invoice from being issued: its buyer would send it back, and by then it cannot be changed.
"""

from __future__ import annotations

from collections.abc import Mapping

SPECIFICATION = "urn:cen.eu:en16931:2017#compliant#urn:xeinkauf.de:kosit:xrechnung_3.0"

_ADDRESS = {"address": "address", "postcode": "post code", "city": "city", "country": "country"}
_SELLER = _ADDRESS | {"contact_name": "contact name", "contact_phone": "contact phone", "email": "e-mail"}


def applies(buyer: Mapping[str, str]) -> bool:
    """Whether the document's buyer, as it was copied, routes invoices by a reference."""
    return bool(buyer.get("buyer_reference"))


def missing(seller: Mapping[str, str], buyer: Mapping[str, str]) -> str:
    """What keeps the buyer's document from being an XRechnung, and what to do; "" for nothing, or where it is none."""
    if not applies(buyer):
        return ""
    lacks = [f"the seller's {name}" for field, name in _SELLER.items() if not _is_stated(seller, field)]
    if not (_is_stated(seller, "vat_id") or _is_stated(seller, "registration")):
        lacks.append("the seller's VAT id or registration")
    fields = dict(_ADDRESS) if buyer.get("electronic_address") else _ADDRESS | {"email": "e-mail"}
    lacks += [f"the tenant's {name}" for field, name in fields.items() if not _is_stated(buyer, field)]
    if not lacks:
        return ""
    return (
        f"{buyer['name']} has a buyer reference, so that its invoices are XRechnungen, and these need "
        f"{_listed(lacks)}: enter it in the administration or in a file for apply, or take the reference away."
    )


def _is_stated(party: Mapping[str, str], field: str) -> bool:
    """Whether something can be read there; of a telephone, a number (BR-DE-27): `n/a` is none."""
    text = party.get(field, "")
    if field == "contact_phone":
        return sum(each.isdigit() for each in text) >= 3
    return any(each.isprintable() and not each.isspace() for each in text)


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
