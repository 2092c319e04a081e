"""The evidence of a document: all that it takes to compute it again, signed, and the program that does.

A ZIP of `invoice.json` and `usage.csv`, the data; `manifest.json`, their digests; the PDF and the e-invoice as they
were sent, with theirs in `documents.json`; `signature.json`, the operator's signature under both; `people.csv`, the
names behind the numbers of users, which can be erased; and the program. The same document gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from django.db import transaction

from billing.documents import evidence_usage, job_users, signing
from billing.documents.evidence_document import document_of
from billing.documents.messages import SENTENCES
from billing.models import Evidence, Invoice, InvoiceDocument, InvoiceLine
from portal.errors import CodedError

PROGRAM = Path(__file__).with_name("verify_invoice")
MAIN = b"""import sys

from verify_invoice.__main__ import main

sys.exit(main(sys.argv[1:] if sys.argv[1:2] and sys.argv[1][0] != "-" else sys.argv))
"""
"""Python runs a ZIP that has it: without another bundle among its arguments, it verifies the one that it stands in."""

IN_MEMORY = 8 << 20  # bytes of a bundle that need no file
PIECE = 1 << 16
LONG_AGO = (1980, 1, 1, 0, 0, 0)  # a ZIP's first moment: bundles do not differ by when they were made


class EvidenceError(CodedError):
    """There is no evidence of this document; its sentence says why."""

    sentences = SENTENCES


class NotReadyError(EvidenceError):
    """There is none yet."""


@transaction.atomic
def fix(invoice: Invoice, *, moment: datetime) -> Evidence:
    """Fix the digests of what stands behind an issued document, and sign them. Asked again, the same.

    Raises VaultError where nothing can be signed.
    """
    fixed = Evidence.objects.filter(invoice=invoice).first()
    if fixed is not None:
        return fixed
    lines = _lines(invoice)
    job_users.number_users(invoice.tenant_id)
    document = _json(document_of(invoice, lines))
    usage = sha256()
    for piece in evidence_usage.usage(lines):
        usage.update(piece)
    files = {"invoice.json": sha256(document).hexdigest(), "usage.csv": usage.hexdigest()}
    manifest = _json({"document": invoice.number, "files": files})
    key = signing.current_key(moment=moment)
    return Evidence.objects.create(
        invoice=invoice,
        tenant_id=invoice.tenant_id,
        document=document,
        manifest=manifest,
        digest=sha256(manifest).hexdigest(),
        key=key,
        signature=signing.sign(manifest, key=key),
    )


def documents(fixed: Evidence, *, pdf: bytes, einvoice: bytes | None) -> bytes:
    """`documents.json`: the digests of what was sent, which stands beside the data and is signed apart."""
    files = {"invoice.pdf": pdf} | ({"factur-x.xml": einvoice} if einvoice is not None else {})
    digests = {name: sha256(content).hexdigest() for name, content in files.items()}
    return _json({"document": fixed.invoice.number, "manifest": fixed.digest, "files": digests})


def bundle(invoice: Invoice) -> Iterator[bytes]:
    """The bundle of an issued document, in pieces; it is whole when this returns. Two queries a line, and five.

    Raises NotReadyError before the PDF is rendered, and EvidenceError for a draft, or should what stands behind it not
    give the digest that was signed.
    """
    if invoice.number is None:
        raise EvidenceError("evidence-of-draft")
    fixed = (
        Evidence.objects.select_related("key", "invoice")
        .defer("key__private")
        .filter(invoice=invoice)
        .first()
    )
    sent = InvoiceDocument.objects.select_related("key").defer("key__private").filter(invoice=invoice).first()
    if fixed is None or sent is None:
        raise NotReadyError("evidence-not-ready", invoice=invoice)
    file = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - closed with the last piece
    try:
        with ZipFile(file, "w", ZIP_DEFLATED) as into:
            _write_data(into, fixed, _lines(invoice))
            _write_sent(into, fixed, sent)
            _write(into, "__main__.py", [MAIN])
            for path in sorted(PROGRAM.glob("*.py")):
                _write(into, f"verify_invoice/{path.name}", [path.read_bytes()])
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return _pieces(file)


def _write_data(into: ZipFile, fixed: Evidence, lines: list[InvoiceLine]) -> None:
    _write(into, "manifest.json", [bytes(fixed.manifest)])
    _write(into, "invoice.json", [bytes(fixed.document)])
    digest = _write(into, "usage.csv", evidence_usage.usage(lines))
    if digest != json.loads(bytes(fixed.manifest))["files"]["usage.csv"]:
        raise EvidenceError("evidence-changed", invoice=fixed.invoice)
    _write(into, "people.csv", evidence_usage.people(lines))


def _write_sent(into: ZipFile, fixed: Evidence, sent: InvoiceDocument) -> None:
    einvoice = bytes(sent.einvoice) if sent.einvoice is not None else None
    _write(into, "invoice.pdf", [bytes(sent.pdf)])
    if einvoice is not None:
        _write(into, "factur-x.xml", [einvoice])
    _write(into, "documents.json", [documents(fixed, pdf=bytes(sent.pdf), einvoice=einvoice)])
    seals = {
        "manifest": {"public_key": fixed.key.public, "signature": fixed.signature},
        "documents": {"public_key": sent.key.public, "signature": sent.signature},
    }
    _write(into, "signature.json", [_json(seals)])


def _lines(invoice: Invoice) -> list[InvoiceLine]:
    with_all = invoice.lines.select_related("service_period", "invoice", "original__invoice")
    return list(with_all.order_by("position"))


def _json(content: dict[str, Any]) -> bytes:
    return f"{json.dumps(content, indent=1)}\n".encode()


def _write(into: ZipFile, name: str, pieces: Iterable[bytes]) -> str:
    """Write the file; its SHA-256."""
    digest = sha256()
    entry = ZipInfo(name, LONG_AGO)
    entry.compress_type = ZIP_DEFLATED
    with into.open(entry, "w", force_zip64=name == "usage.csv") as file:
        for piece in pieces:
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(PIECE):
            yield piece
