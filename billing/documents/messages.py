"""What documents refuse: the sentence of each code, with its values filled in."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    # e-invoices
    "einvoice-currency": _("EN 16931 has amounts of two decimals, and {currency} has more."),
    "einvoice-invalid": _("{invoice} is no valid e-invoice: {reason}"),
    "einvoice-of-draft": _("A draft has no e-invoice; issue it first."),
    "einvoice-outside-scope": _("EN 16931 allows nothing taxed beside what is outside the scope of tax."),
    "einvoice-without-line": _("EN 16931 has no invoice without a line."),
    "seller-without-country": _("The seller had no country when it was issued: give it a `country`."),
    "seller-without-registration": _(
        "The seller had no registration that it is known by: give it a `registration`."
    ),
    "seller-without-vat-id": _("The seller had no VAT id when it was issued: give it a `vat_id`."),
    "tenant-without-country": _("The tenant had no country when it was issued: give it a `country`."),
    "tenant-without-vat-id": _("The tenant had no VAT id when it was issued: give it a `vat_id`."),
    # evidence
    "evidence-changed": _(
        "What is kept of the jobs behind {invoice} is not what was signed, so no evidence is handed out: restore the "
        "database from a backup, and run `prove` to see what else differs."
    ),
    "evidence-not-ready": _("The evidence of {invoice} is not ready: its PDF has not been rendered yet."),
    "evidence-of-draft": _("A draft changes with its usage: it has no evidence before it is issued."),
    # the typesetter
    "einvoice-not-set": _("The invoice could not be set as an e-invoice: {reason}."),
    "pdf-not-set": _("The invoice could not be set as a PDF: {reason}."),
    "typesetter-ended": _("The typesetter ended before the document was set: ask for it again."),
}
