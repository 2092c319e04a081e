"""What tenants read where their billing details are refused: the sentence of each code, and the name of each field."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_noop as _

FIELDS: Mapping[str, str] = {
    "email": _("Billing e-mail"),
    "address": _("Postal address"),
    "postcode": _("Post code"),
    "city": _("City"),
    "vat_id": _("VAT id"),
    "purchase_order": _("Purchase order"),
    "buyer_reference": _("Buyer reference"),
    "electronic_address": _("Address for e-invoices"),
    "language": _("Language of e-mails and documents"),
}
"""The columns, with their names for people. Country, name and treatment of taxes stay with the operator."""

SENTENCES: Mapping[str, str] = {
    **FIELDS,  # which the sentences name
    "details-characters": _("{field} has control characters in it: type it anew."),
    "details-field": _("{field}: {why}"),
    "details-taxes": _("No invoice could be taxed so: {why}"),
    "details-vat-id": _(
        "With this VAT id your invoices would have reverse charge, for which it is looked up in VIES first: send it "
        "to {seller}, who enters it. Leave the field as it is to save the rest."
    ),
}
