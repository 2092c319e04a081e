"""Credit notes: what is taken back of an issued invoice, in a series of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime

from django.db import transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.invoicing import corrections, invoice_drafts, line_taxes, numbering, sellers
from billing.invoicing.invoice_drafts import DraftInvoice
from billing.invoicing.messages import SENTENCES
from billing.models import (
    CLOSED_PERIOD,
    DocumentKind,
    Invoice,
    InvoiceLine,
    InvoiceState,
    LineKind,
    Seller,
)
from billing.payments import refunds
from billing.rules.credit import Fits, OverCreditError, find_limit, spread
from billing.rules.money import Money
from portal.errors import CodedError
from portal.languages import in_language

CORRECTED = gettext_noop("The usage of this invoice was corrected after it was issued.")


class CreditError(CodedError):
    """An invoice cannot be credited so; the message says why and what to do."""

    sentences = SENTENCES


@transaction.atomic
def issue_credit_note(
    *,
    invoice: Invoice,
    reason: str,
    by: str,
    on: date,
    net: Money | None = None,
    position: int | None = None,
    moment: datetime | None = None,
) -> Invoice:
    """Issue a credit note for an issued invoice, for one line of it, or for `net`, an amount before tax.

    What was used stays billed: the credit is given beside it. Each line is credited at the tax at which
    it was billed, and no line beyond what is left of it, whether other credit notes or later invoices
    took the rest back. Nor is the invoice credited beyond what is left of its total, which is less than its lines
    say where it took off something for an earlier one. Asked again it credits again, as far as something is left.
    What comes back to a wallet does so at `moment`; None: when the day begins. `on` is a day where the invoice was
    issued, and none before it was. Raises CreditError.
    """
    numbering.lock(invoice.tenant)
    invoice = Invoice.objects.select_for_update(no_key=True).get(pk=invoice.pk)
    if invoice.kind == DocumentKind.CREDIT_NOTE or invoice.state != InvoiceState.ISSUED:
        status = invoice.state if invoice.kind != DocumentKind.CREDIT_NOTE else "a credit note"
        raise CreditError("not-creditable", invoice=invoice, status=status)
    if not reason.strip():
        raise CreditError("credit-without-reason")
    if invoice.issued_on is not None and on < invoice.issued_on:
        raise CreditError("credit-before-invoice", invoice=invoice, issued_on=invoice.issued_on)
    lines = {line.pk: line for line in invoice.lines.order_by("position")}
    chosen = [pk for pk, line in lines.items() if position in (None, line.position)]
    if not chosen:
        raise CreditError("no-such-line", invoice=invoice, position=position)
    billed = corrections.load_billed_lines(lines.values())
    lefts = [(pk, Money.from_minor(billed.left(pk), invoice.currency)) for pk in chosen]

    def fits(amounts: Mapping[int, Money]) -> bool:
        return billed.covers(invoice.pk, [(billed.lines[pk].tax, -money) for pk, money in amounts.items()])

    amounts = _credited_lines(invoice, net, lefts, fits)
    note = _make_note(invoice, sellers.load_seller(), reason=reason.strip(), rated_through=0)
    note.terms = {"credited_by": by}
    with in_language(invoice.buyer.get("language", "")):
        credit_lines = [
            corrections.make_credit_line(lines[pk], billed.lines[pk], -amount.minor)
            for pk, amount in amounts.items()
        ]
    _save_lines(note, credit_lines)
    numbering.issue_invoices([(invoice.tenant, note, on)], moment=moment)
    refunds.assign_to_credit_note(note, on=on)
    return note


def draft_credit_notes(bill: DraftInvoice) -> list[Invoice]:
    """The drafts of the credit notes that the bill's corrections make, one for each invoice."""
    originals = Invoice.objects.in_bulk(bill.divided.credits) if bill.divided.credits else {}
    notes = []
    for pk, lines in sorted(bill.divided.credits.items()):
        note = _make_note(
            originals[pk],
            bill.seller,
            reason=_corrected(originals[pk]),
            rated_through=bill.charges.due.rated_through,
        )
        note.terms = {CLOSED_PERIOD: bill.charges.period.pk}
        if originals[pk].buyer.get("language") != bill.charges.tenant.language:
            _describe_as_billed(originals[pk], lines)
        notes.append(_save_lines(note, lines))
    return notes


def _describe_as_billed(original: Invoice, lines: Sequence[InvoiceLine]) -> None:
    """As the invoice has them, which is in another language than its tenant reads now. One query."""
    billed = {line.pk: line for line in original.lines.all()}
    with in_language(original.buyer.get("language", "")):
        for line in lines:
            if (first := billed.get(line.original_id or 0)) is None:
                continue
            line.description = first.description
            if line.kind == LineKind.CREDIT:
                line.description = corrections.credit_text(
                    first.description, amount=line.amount, original=first.amount
                )


def _credited_lines(
    invoice: Invoice, net: Money | None, lefts: Sequence[tuple[int, Money]], fits: Fits
) -> dict[int, Money]:
    """By line what is credited of it."""
    zero, left = Money.zero(invoice.currency), find_limit(lefts, fits)
    if left <= zero:
        raise CreditError("nothing-left-to-credit", invoice=invoice)
    if net is not None and net.currency != invoice.currency:
        raise CreditError("other-currency", invoice=invoice, currency=invoice.currency, other=net.currency)
    if net is not None and net <= zero:
        raise CreditError("credit-not-positive")
    try:
        return spread(left if net is None else net, lefts, fits)
    except OverCreditError as error:
        raise CreditError("credit-too-large", invoice=invoice, cause=error) from error


def _corrected(original: Invoice) -> str:
    """In the language of the invoice."""
    with in_language(original.buyer.get("language", "")):
        return _(CORRECTED)


def _make_note(original: Invoice, seller: Seller, *, reason: str, rated_through: int) -> Invoice:
    """With the parties and the period of its invoice; not saved, and without sums."""
    return Invoice(
        kind=DocumentKind.CREDIT_NOTE,
        original=original,
        reason=reason,
        tenant_id=original.tenant_id,
        period_id=original.period_id,
        period_start=original.period_start,
        period_end=original.period_end,
        timezone=original.timezone,
        currency=original.currency,
        seller=original.seller | {"credit_prefix": seller.credit_prefix},
        buyer=original.buyer,
        tax_name=original.tax_name,
        tax_rate=original.tax_rate,
        rated_through=rated_through,
    )


def _save_lines(note: Invoice, lines: Sequence[InvoiceLine]) -> Invoice:
    if note.original is None:
        raise TypeError("a credit note has its invoice")
    taxes = line_taxes.credit_taxes(lines, note.original)
    invoice_drafts.save_drafts([(invoice_drafts.set_totals(note, taxes), lines, taxes)])
    return note
