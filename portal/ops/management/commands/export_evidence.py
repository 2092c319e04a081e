"""`export_evidence NUMBER [FILE]`: all that it takes to compute an invoice again, and the program that does."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.documents import evidence
from portal.ops.cli import Answer, OperatorCommand, RefusedError
from portal.ops.lookups import the_invoice


class Command(OperatorCommand):
    help = "Write the evidence of an issued invoice or credit note: a ZIP that verifies itself, run by Python alone."
    refusals: ClassVar[tuple[type[Exception], ...]] = (evidence.EvidenceError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("number", metavar="NUMBER")
        parser.add_argument("file", metavar="FILE", nargs="?", help="default: NUMBER-evidence.zip")

    def answer(self, **options: Any) -> Answer:
        invoice = the_invoice(options["number"])
        path = Path(options["file"] or f"{invoice.number}-evidence.zip")
        half = path.with_name(f".{path.name}.half")  # a file of that name is whole, or it is not there
        try:
            with half.open("wb") as file:
                for piece in evidence.bundle(invoice):
                    file.write(piece)
            half.replace(path)
        except OSError as error:
            raise RefusedError(f"{path} cannot be written: {error.strerror}.") from error
        finally:
            half.unlink(missing_ok=True)
        return Answer(
            {"invoice": invoice.number, "file": path.name, "bytes": path.stat().st_size},
            f"{path}: `python3 {path.name}` verifies it.",
        )
