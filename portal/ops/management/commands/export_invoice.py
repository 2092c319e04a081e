"""`export_invoice NUMBER [FILE]`: the PDF of an issued document, or its e-invoice, as it was sent."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.documents import issued
from billing.documents.issued import Made
from billing.documents.typesetting import TypesettingError
from billing.models import Invoice
from portal.core.vault import VaultError
from portal.ops.cli import Answer, BadInputError, OperatorCommand, RefusedError
from portal.ops.lookups import the_invoice


class Command(OperatorCommand):
    help = "Write an issued invoice or credit note: FILE.pdf, or FILE.xml for the e-invoice alone."
    refusals: ClassVar[tuple[type[Exception], ...]] = (TypesettingError, VaultError)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("number", metavar="NUMBER")
        parser.add_argument(
            "file", metavar="FILE", nargs="?", help="default: NUMBER.pdf; ends with .pdf or .xml"
        )

    def answer(self, **options: Any) -> Answer:
        invoice = the_invoice(options["number"])
        path = Path(options["file"] or f"{invoice.number}.pdf")
        if path.suffix not in {".pdf", ".xml"}:
            raise BadInputError(f"{path.name} ends neither with .pdf nor with .xml: say which it is to be.")
        rendering = _sent(invoice)
        content = rendering.pdf if path.suffix == ".pdf" else rendering.einvoice
        if content is None:
            raise RefusedError(f"{invoice} has no e-invoice. {rendering.refusal}")
        try:
            path.write_bytes(content)
        except OSError as error:
            raise RefusedError(f"{path} cannot be written: {error.strerror}.") from error
        carries = rendering.einvoice is not None
        note = " with its e-invoice in it" if carries and path.suffix == ".pdf" else ""
        return Answer(
            {"invoice": invoice.number, "file": path.name, "bytes": len(content), "einvoice": carries},
            f"{path}: {invoice}{note}.",
        )


def _sent(invoice: Invoice) -> Made:
    """As it is kept; where it is not rendered yet that is done now."""
    document = issued.keep(invoice, moment=datetime.now(UTC).replace(microsecond=0))
    xml = bytes(document.einvoice) if document.einvoice is not None else None
    return Made(bytes(document.pdf), xml, document.no_einvoice or "It was issued before there were any.")
