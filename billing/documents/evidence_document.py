"""`invoice.json` of the evidence: the document as it was frozen, and what had been billed of each line before."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from django.db.models import Q

from billing.models import (
    CLOSED_PERIOD,
    Commitment,
    Discount,
    DocumentKind,
    Fee,
    Invoice,
    InvoiceLine,
    InvoiceState,
    LineKind,
    Price,
    Resource,
)
from billing.models.invoices import InvoiceQuerySet
from billing.rules.money import exponent
from billing.rules.statement_lines import TermKind
from billing.wallets import invoice_payments

Sums = dict[tuple[Any, ...], tuple[Fraction, int]]
"""What lines hold under one key, in resource-seconds and in minor units."""

Subject = tuple[str, int | None]
"""The price, or the term, that a line states."""


def document_of(invoice: Invoice, lines: list[InvoiceLine]) -> dict[str, Any]:
    """What stands on the document, and of what it can be computed. Ten queries at most."""
    billed_lines = _billed_lines(invoice, lines)
    sibling_ids = set(_sibling_documents(invoice).values_list("pk", flat=True))
    before = _sums([line for line in billed_lines if line.invoice_id not in sibling_ids])
    sibling_sums = _sums([line for line in billed_lines if line.invoice_id in sibling_ids])
    versions = _versions([*lines, *billed_lines])
    charged = _charged(lines, billed_lines, versions)
    by_use = _by_use(lines)
    return {
        "number": invoice.number,
        "credit_note": invoice.kind == DocumentKind.CREDIT_NOTE,
        "credits": invoice.original.number if invoice.original else None,
        "reason": invoice.reason,
        "currency": invoice.currency,
        "decimals": exponent(invoice.currency),
        "issued_on": str(invoice.issued_on),
        "period": [f"{invoice.period_start:%Y-%m-%dT%H:%M:%SZ}", f"{invoice.period_end:%Y-%m-%dT%H:%M:%SZ}"],
        "seller": invoice.seller,
        "buyer": invoice.buyer,
        "lines": [
            _line(line, versions.get(_subject(line)))
            | {
                "by_use": line.price_id in by_use,
                "original": _original(line),
                "before": _sum(before, line),
                "beside": _sum(sibling_sums, line),
            }
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
            for grant, amount in (invoice_payments.entries(invoice) if invoice.prepaid else [])
        ],
        "from_credit": invoice.from_credit,
        "due": invoice.amount_requested,
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


def _by_use(lines: list[InvoiceLine]) -> set[int]:
    """The prices of these lines that share GPU-seconds with another one by how busy the devices were."""
    versions = Price.objects.exclude(uses=[]).values("version")
    prices = Price.objects.filter(pk__in={line.price_id for line in lines}, version__in=versions)
    return set(prices.filter(resource=Resource.GPU).values_list("pk", flat=True))


def _original(line: InvoiceLine) -> dict[str, Any] | None:
    """The line that it takes back from. `original__invoice` has to be loaded."""
    of = line.original
    if of is None:
        return None
    return {"number": of.invoice.number, "position": of.position, "amount": of.amount}


def _billed_lines(invoice: Invoice, lines: list[InvoiceLine]) -> list[InvoiceLine]:
    """What documents before this one, and those issued beside it, hold of the service periods of its lines."""
    rows = InvoiceLine.objects.filter(
        Q(invoice__rated_through__lt=invoice.rated_through)
        | Q(invoice__rated_through=invoice.rated_through, invoice__lt=invoice.pk)
        | Q(invoice__in=_sibling_documents(invoice).values("pk")),
        tenant=invoice.tenant_id,
        invoice__state=InvoiceState.ISSUED,
        kind__in=[LineKind.USAGE, *TermKind],
        service_period__in={line.service_period_id for line in lines},
    )
    return list(rows.select_related("service_period").order_by("pk"))


def _sibling_documents(invoice: Invoice) -> InvoiceQuerySet:
    """Documents that the close which issued this one issued with it.

    Nothing rated may come between two closes, and one of them may have no invoice: how far documents reach does not
    tell them apart. A credit note says whose close issued it; one that was made by hand has none.
    """
    is_note = invoice.kind == DocumentKind.CREDIT_NOTE
    period = invoice.terms.get(CLOSED_PERIOD) if is_note else invoice.period_id
    same = Q(kind=DocumentKind.CORRECTION, period=period)
    same |= Q(kind=DocumentKind.CREDIT_NOTE, terms__contains={CLOSED_PERIOD: period})
    if is_note:
        same |= Q(kind=DocumentKind.INVOICE, period=period)
    else:
        same &= Q(pk__gt=invoice.pk)
    return (
        Invoice.objects.issued()
        .filter(same, tenant=invoice.tenant_id, rated_through=invoice.rated_through)
        .exclude(pk=invoice.pk)
    )


def _sums(billed_lines: list[InvoiceLine]) -> Sums:
    sums: Sums = {}
    for line in billed_lines:
        seconds, billed = sums.get(_key(line), (Fraction(0), 0))
        more = Fraction(int(line.seconds_num), line.seconds_den)
        sums[_key(line)] = seconds + more, billed + line.amount
    return sums


def _sum(sums: Sums, line: InvoiceLine) -> dict[str, Any]:
    seconds, billed = sums.get(_key(line), (Fraction(0), 0))
    return {"seconds": str(seconds), "amount": billed}


def _key(line: InvoiceLine) -> tuple[Any, ...]:
    return (line.service_period_id, line.project_id, *_subject(line))


def _subject(line: InvoiceLine) -> Subject:
    return line.kind, line.price_id if line.kind == LineKind.USAGE else line.term_id


def _versions(lines: list[InvoiceLine]) -> dict[Subject, int]:
    """By subject the version of the plan that says it: commitments and discounts are of one version's charges."""
    if not any(line.kind in list(TermKind) for line in lines):
        return {}
    versions: dict[Subject, int] = {}
    for kind, model in (
        (LineKind.USAGE, Price),
        (LineKind.FEE, Fee),
        (LineKind.COMMITMENT, Commitment),
        (LineKind.DISCOUNT, Discount),
    ):
        keys = {key for of, key in map(_subject, lines) if of == kind and key is not None}
        rows = model._default_manager.filter(pk__in=keys)
        versions |= {(kind.value, pk): version for pk, version in rows.values_list("pk", "version")}
    return versions


def _charged(
    lines: list[InvoiceLine], billed_lines: list[InvoiceLine], versions: dict[Subject, int]
) -> list[dict[str, Any]]:
    """What other documents charge for the service periods in which a commitment or a discount holds."""
    kinds = (LineKind.COMMITMENT, LineKind.DISCOUNT)
    period_ids = {line.service_period_id for line in lines if line.kind in kinds}
    sums: dict[tuple[Any, ...], int] = {}
    for line in billed_lines:
        if line.service_period_id in period_ids:
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


def _plain(number: Any) -> str:
    return f"{number.normalize():f}"
