"""`export_evidence NUMBER [FILE]`: all that it takes to compute an invoice again, and the program that does."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.documents import evidence
from portal.core.tenants.scope import tenant_scope
from portal.ops.cli import Answer, OperatorCommand
from portal.ops.lookups import the_invoice
from portal.ops.whole_files import whole_file


class Command(OperatorCommand):
    help = "Write the evidence of an issued invoice or credit note: a ZIP that verifies itself, run by Python alone."
    refusals: ClassVar[tuple[type[Exception], ...]] = (evidence.EvidenceError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("number", metavar="NUMBER")
        parser.add_argument("file", metavar="FILE", nargs="?", help="default: NUMBER-evidence.zip")

    def answer(self, **options: Any) -> Answer:
        invoice = the_invoice(options["number"])
        path = Path(options["file"] or f"{invoice.number}-evidence.zip")
        # Rows of dropped months are read from files in the scope of their tenant alone.
        with whole_file(path) as file, tenant_scope(invoice.tenant):
            size = sum(file.write(piece) for piece in evidence.bundle(invoice))
        return Answer(
            {"invoice": invoice.number, "file": path.name, "bytes": size},
            f"{path}: `python3 {path.name}` verifies it.",
        )
