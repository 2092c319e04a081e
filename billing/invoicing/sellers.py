"""Who issues the invoices, and what the law wants to be known of them before one is issued."""

from __future__ import annotations

from billing.models import Seller
from billing.rules.supply import EU


def load_seller() -> Seller:
    """Who issues the invoices; one without a code, and not saved, where nobody has entered it yet."""
    return Seller.objects.order_by("pk").first() or Seller(code="", name="The operator of this cluster")


def describe_missing(seller: Seller) -> str:
    """Why no invoice can be issued in the seller's name, and what to do, in a sentence; "" where one can.

    Name and address stand on every invoice. In the EU its VAT id does (Directive 2006/112/EC, article 226), or, of
    those who have none, a tax number, which is entered as the registration.
    """
    where = "in the administration under Sellers, or as [seller] in a file for apply"
    if not seller.code:
        return f"Nobody is entered as the seller: enter name and address {where}."
    lacks = [name for name in ("name", "address") if not getattr(seller, name).strip()]
    if seller.country in EU and not (seller.vat_id.strip() or seller.registration.strip()):
        lacks.append("VAT id (or tax number, as registration)")
    return f"The seller has no {' and no '.join(lacks)}: enter it {where}." if lacks else ""
