"""The evidence of an invoice: all that it takes to compute it again, and the program that does.

A ZIP of `invoice.json` (the frozen document, and what was billed of each line before), `usage.csv` (the
stretch of every job behind every line; of what another tenant used, its sum), the PDF and the e-invoice as they were
sent, `verify_invoice.py` and
`SHA256SUMS`.
The same invoice gives the same bytes.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from fractions import Fraction
from hashlib import sha256
from io import StringIO
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from django.db.models import Q

from billing.crediting import CLOSED
from billing.documents.csv import cell
from billing.explanation import jobs_of
from billing.models import (
    Commitment,
    Discount,
    DocumentKind,
    Fee,
    Invoice,
    InvoiceDocument,
    InvoiceLine,
    InvoiceState,
    LineKind,
    Price,
)
from billing.rules.money import exponent
from billing.rules.statement import TermKind
from billing.wallets import paying

PROGRAM = Path(__file__).with_name("verify_invoice.py")
IN_MEMORY = 8 << 20  # bytes of a bundle that need no file
PIECE = 1 << 16
LONG_AGO = (1980, 1, 1, 0, 0, 0)  # a ZIP's first moment: bundles do not differ by when they were made
COLUMNS = ("line", "record", "job", "user", "service_from", "service_to", "units", "share_num", "share_den")


Sums = dict[tuple[Any, ...], tuple[Fraction, int]]
"""What lines hold under one key, in resource-seconds and in minor units."""


class EvidenceError(Exception):
    """There is no evidence of this document; the message says why."""


def bundle(invoice: Invoice) -> Iterator[bytes]:
    """The bundle of an issued invoice, in pieces. A query per line, besides ten at most. Raises EvidenceError."""
    if invoice.kind == DocumentKind.CREDIT_NOTE:
        raise EvidenceError(
            f"{invoice} is a credit note, which states what it takes back of {invoice.original}: ask for the "
            "evidence of that."
        )
    if invoice.number is None:
        raise EvidenceError("A draft changes with its usage: it has no evidence before it is issued.")
    lines = list(invoice.lines.select_related("service_period", "invoice").order_by("position"))
    with SpooledTemporaryFile(IN_MEMORY) as file:
        with ZipFile(file, "w", ZIP_DEFLATED) as into:
            sums = [
                _write(into, "invoice.json", [json.dumps(_document(invoice, lines), indent=1).encode()]),
                _write(into, "usage.csv", _usage(lines)),
                _write(into, "verify_invoice.py", [PROGRAM.read_bytes()]),
            ]
            sent = InvoiceDocument.objects.filter(invoice=invoice).first()
            if sent is not None:
                sums.append(_write(into, "invoice.pdf", [bytes(sent.pdf)]))
                if sent.einvoice is not None:
                    sums.append(_write(into, "factur-x.xml", [bytes(sent.einvoice)]))
            _write(into, "SHA256SUMS", ["".join(sums).encode()])
        file.seek(0)
        yield from _pieces(file)


def _write(into: ZipFile, name: str, pieces: Any) -> str:
    """Write the file; its line of SHA256SUMS."""
    digest = sha256()
    told = ZipInfo(name, LONG_AGO)
    told.compress_type = ZIP_DEFLATED
    with into.open(told, "w", force_zip64=True) as file:
        for piece in pieces:
            digest.update(piece)
            file.write(piece)
    return f"{digest.hexdigest()}  {name}\n"


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        yield piece


def _document(invoice: Invoice, lines: list[InvoiceLine]) -> dict[str, Any]:
    standing = _standing(invoice, lines)
    before = _sums([line for line in standing if line.invoice_id < invoice.pk])
    beside = _sums([line for line in standing if line.invoice_id > invoice.pk])
    versions = _versions([*lines, *standing])
    charged = _charged(lines, standing, versions)
    return {
        "number": invoice.number,
        "credit_note": invoice.kind == DocumentKind.CREDIT_NOTE,
        "currency": invoice.currency,
        "decimals": exponent(invoice.currency),
        "issued_on": str(invoice.issued_on),
        "period": [f"{invoice.period_start:%Y-%m-%dT%H:%M:%SZ}", f"{invoice.period_end:%Y-%m-%dT%H:%M:%SZ}"],
        "seller": invoice.seller,
        "buyer": invoice.buyer,
        "lines": [
            _line(line, versions.get(_subject(line)))
            | {"before": _told(before, line), "beside": _told(beside, line)}
            for line in lines
        ],
        "charged": charged,
        "subtotal": invoice.subtotal,
        "taxes": [
            {
                "category": row.category,
                "rate": _plain(row.rate),
                "net": row.net,
                "tax": row.tax,
                "reason": row.reason,
            }
            for row in invoice.taxes.order_by("pk")
        ],
        "tax": invoice.tax,
        "total": invoice.total,
        "prepaid": invoice.prepaid,
        "wallet": [
            {"grant": grant.key, "expires": str(grant.expires_on or ""), "amount": amount}
            for grant, amount in (paying.entries(invoice) if invoice.prepaid else [])
        ],
        "from_credit": invoice.from_credit,
        "due": invoice.asked,
    }


def _line(line: InvoiceLine, version: int | None) -> dict[str, Any]:
    return {
        "position": line.position,
        "kind": line.kind,
        "term": _subject(line)[1],
        "version": version,
        "project": line.project,
        "project_id": line.project_id,
        "used_by": line.used_by(),
        "description": line.description,
        "meter": line.meter,
        "service": [
            f"{line.service_period.start:%Y-%m-%dT%H:%M:%SZ}",
            f"{line.service_period.end:%Y-%m-%dT%H:%M:%SZ}",
        ],
        "seconds": str(Fraction(int(line.seconds_num), line.seconds_den)),
        "unit_price": None if line.unit_price is None else _plain(line.unit_price),
        "terms": line.terms,
        "amount": line.amount,
        "tax": [line.tax_category, _plain(line.tax_rate)],
    }


def _standing(invoice: Invoice, lines: list[InvoiceLine]) -> list[InvoiceLine]:
    """What documents before this one, and those issued beside it, hold of the service periods of its lines."""
    beside = Q(invoice__rated_through=invoice.rated_through, invoice__gt=invoice.pk) & _of_one_close(invoice)
    found = InvoiceLine.objects.filter(
        Q(invoice__rated_through__lt=invoice.rated_through)
        | Q(invoice__rated_through=invoice.rated_through, invoice__lt=invoice.pk)
        | beside,
        tenant=invoice.tenant_id,
        invoice__state=InvoiceState.ISSUED,
        kind__in=[LineKind.USAGE, *TermKind],
        service_period__in={line.service_period_id for line in lines},
    )
    return list(found.select_related("service_period").order_by("pk"))


def _of_one_close(invoice: Invoice) -> Q:
    """Documents that the close of its period issued with it.

    Nothing rated may come between two closes, and one of them may have no invoice: how far documents reach does not
    tell them apart. Credit notes from before they said their close count up to the next invoice, on the same day.
    """
    following = Invoice.objects.filter(tenant=invoice.tenant_id, kind=DocumentKind.INVOICE, pk__gt=invoice.pk)
    after = following.exclude(number=None).order_by("pk").values_list("pk", flat=True).first()
    unsaid = Q(invoice__issued_on=invoice.issued_on) & ~Q(invoice__terms__has_key=CLOSED)
    if after is not None:
        unsaid &= Q(invoice__lt=after)
    said = unsaid | Q(invoice__terms__contains={CLOSED: invoice.period_id})
    return Q(invoice__kind=DocumentKind.CORRECTION, invoice__period=invoice.period_id) | (
        Q(invoice__kind=DocumentKind.CREDIT_NOTE) & said
    )


def _sums(standing: list[InvoiceLine]) -> Sums:
    found: Sums = {}
    for line in standing:
        seconds, billed = found.get(_key(line), (Fraction(0), 0))
        more = Fraction(int(line.seconds_num), line.seconds_den)
        found[_key(line)] = seconds + more, billed + line.amount
    return found


def _told(sums: Sums, line: InvoiceLine) -> dict[str, Any]:
    seconds, billed = sums.get(_key(line), (Fraction(0), 0))
    return {"seconds": str(seconds), "amount": billed}


def _key(line: InvoiceLine) -> tuple[Any, ...]:
    return (line.service_period_id, line.project_id, *_subject(line))


def _subject(line: InvoiceLine) -> tuple[str, int | None]:
    """The price, or the term, that the line states."""
    return line.kind, line.price_id if line.kind == LineKind.USAGE else line.term_id


def _versions(lines: list[InvoiceLine]) -> dict[tuple[str, int | None], int]:
    """By subject the version of the plan that says it: commitments and discounts are of one version's charges."""
    if not any(line.kind in list(TermKind) for line in lines):
        return {}
    found: dict[tuple[str, int | None], int] = {}
    for kind, model in (
        (LineKind.USAGE, Price),
        (LineKind.FEE, Fee),
        (LineKind.COMMITMENT, Commitment),
        (LineKind.DISCOUNT, Discount),
    ):
        wanted = {key for of, key in map(_subject, lines) if of == kind and key is not None}
        rows = model._default_manager.filter(pk__in=wanted)
        found |= {(kind.value, pk): version for pk, version in rows.values_list("pk", "version")}
    return found


def _charged(
    lines: list[InvoiceLine], standing: list[InvoiceLine], versions: dict[tuple[str, int | None], int]
) -> list[dict[str, Any]]:
    """What other documents charge for the service periods in which a commitment or a discount holds."""
    kinds = (LineKind.COMMITMENT, LineKind.DISCOUNT)
    asked = {line.service_period_id for line in lines if line.kind in kinds}
    sums: dict[tuple[Any, ...], int] = {}
    for line in standing:
        if line.service_period_id in asked:
            start = f"{line.service_period.start:%Y-%m-%dT%H:%M:%SZ}"
            term = line.term_id if line.kind != LineKind.USAGE else None
            key = (start, line.used_by(), versions.get(_subject(line)), line.kind, term)
            sums[key] = sums.get(key, 0) + line.amount
    return [
        {
            "service": start,
            "used_by": user,
            "version": version,
            "kind": kind,
            "term": term,
            "amount": amount,
        }
        for (start, user, version, kind, term), amount in sums.items()
    ]


def _usage(lines: list[InvoiceLine]) -> Iterator[bytes]:
    text = StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for line in lines:
        if line.kind != LineKind.USAGE:
            continue
        if line.used_by() is not None:
            service = line.service_period
            period = (f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in (service.start, service.end))
            writer.writerow((line.position, "", "", "", *period, int(line.seconds_num), 1, line.seconds_den))
            continue
        for cut in jobs_of(line):
            writer.writerow(
                (
                    *(line.position, cut.record_id, cell(cut.job_id), cell(cut.user)),
                    *(f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in (cut.service_from, cut.service_to)),
                    *(cut.units, cut.share_num, cut.share_den),
                )
            )
            if text.tell() >= PIECE:
                yield _taken(text)
    yield _taken(text)


def _taken(text: StringIO) -> bytes:
    piece = text.getvalue().encode("utf-8", "replace")
    text.seek(0)
    text.truncate()
    return piece


def _plain(number: Any) -> str:
    return f"{number.normalize():f}"
