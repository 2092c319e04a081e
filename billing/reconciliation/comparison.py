"""In what the gateway's books and ours differ: each difference with its kind, and what both say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q, QuerySet

from billing.models import (
    AttemptState,
    DifferenceKind,
    Invoice,
    PaymentAttempt,
    PaymentDispute,
    PaymentRefund,
    RefundState,
)
from billing.payments import gateway_access, refunds
from billing.payments.gateways.base import Charge, ChargeState, Movement, Payout
from billing.receivables import settlement
from billing.reconciliation.gateway_objects import FEE_KINDS, OWN_KINDS, There, attempts_of, moment_of
from billing.rules import gateway_amounts

SETTLING = timedelta(hours=1)
"""What happened so lately is left to the rounds of collecting, which take it over within minutes."""
FEE_DELAY = timedelta(days=3)
"""By then the gateway has reported the fee of a payment."""
UNDONE = frozenset({"canceled", "failed"})


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One difference. `ours` and `theirs` are short texts for people."""

    kind: DifferenceKind
    object_id: str
    about_at: datetime
    ours: str
    theirs: str
    tenant: int | None = None
    invoice: int | None = None


@dataclass(frozen=True, slots=True)
class Books:
    """Both sides of a comparison, and the moment that it is made at."""

    there: There
    attempts: Mapping[str, PaymentAttempt]  # by the gateway's name of their charge
    unplaced: Mapping[str, str]  # charges of ours that belong to nothing here, and why
    since: datetime
    until: datetime
    moment: datetime


def differences(books: Books) -> list[Mismatch]:
    """All of them, in no order; each object may have several, of different kinds."""
    return [
        *_charges(books),
        *_missing_there(books),
        *_paid_twice(books),
        *_refunds(books),
        *_disputes(books),
        *_movements(books),
        *_payouts(books),
    ]


def amount_text(amount: int, currency: str) -> str:
    """An amount of the gateway's, for people: `12.34 EUR`."""
    return f"{gateway_amounts.as_money(amount, currency).rounded().text} {currency}"


def _charges(books: Books) -> Iterator[Mismatch]:
    for charge in books.there.charges.values():
        row = books.attempts.get(charge.id)
        if row is None:
            yield from _missing_here(charge, books)
            continue
        yield from _charge(charge, row, books)
        yield from _fee(charge, row, books)


def _missing_here(charge: Charge, books: Books) -> Iterator[Mismatch]:
    """A charge that took money and has no row; given back in full, nothing is missing."""
    lasting = charge.state is ChargeState.SUCCEEDED and charge.refunded < charge.amount
    if not (lasting or charge.state is ChargeState.PROCESSING) or _is_fresh(charge, books):
        return
    invoice = _invoice_named(charge)
    paid = invoice is not None and invoice.attempts.filter(state=AttemptState.SUCCEEDED).exists()
    yield Mismatch(
        DifferenceKind.PAID_TWICE if paid else DifferenceKind.MISSING_HERE,
        charge.id,
        moment_of(charge.created),
        books.unplaced.get(charge.id, "No row."),
        f"{amount_text(charge.amount, charge.currency)}, {charge.state}, for "
        f"{charge.tags.get('ct_number') or 'a top-up'}",
        invoice.tenant_id if invoice else None,
        invoice.pk if invoice else None,
    )


def _invoice_named(charge: Charge) -> Invoice | None:
    number, slug = charge.tags.get("ct_number"), charge.tags.get("ct_tenant")
    return Invoice.objects.filter(number=number, tenant__slug=slug).first() if number else None


def _charge(charge: Charge, row: PaymentAttempt, books: Books) -> Iterator[Mismatch]:
    expected, _ = gateway_amounts.to_stripe(row.amount, row.currency)
    if charge.currency != row.currency:
        yield _of(row, DifferenceKind.CURRENCY, charge, row.currency, charge.currency)
    elif charge.amount != expected:
        ours, theirs = amount_text(expected, row.currency), amount_text(charge.amount, charge.currency)
        yield _of(row, DifferenceKind.AMOUNT, charge, ours, theirs)
    paid_here, paid_there = row.state == AttemptState.SUCCEEDED, charge.state is ChargeState.SUCCEEDED
    ended = charge.state in {ChargeState.FAILED, ChargeState.CANCELED}
    waits = row.state == AttemptState.PROCESSING and ended
    lately = row.settled_at is not None and books.moment - row.settled_at <= SETTLING
    if (paid_here is not paid_there or waits) and not (lately or (paid_there and _is_fresh(charge, books))):
        yield _of(row, DifferenceKind.STATUS, charge, row.get_state_display(), str(charge.state))


def _fee(charge: Charge, row: PaymentAttempt, books: Books) -> Iterator[Mismatch]:
    if row.state != AttemptState.SUCCEEDED or charge.state is not ChargeState.SUCCEEDED:
        return
    if charge.fee is None:
        if books.moment - moment_of(charge.settled or charge.created) > FEE_DELAY:
            ours = (
                amount_text(row.fee, row.fee_currency or row.currency) if row.fee is not None else "unknown"
            )
            yield _of(row, DifferenceKind.FEE_UNKNOWN, charge, ours, "not reported")
    elif (row.fee, row.fee_currency or row.currency) != (charge.fee, charge.fee_currency):
        ours = amount_text(row.fee, row.fee_currency or row.currency) if row.fee is not None else "unknown"
        yield _of(row, DifferenceKind.FEE, charge, ours, amount_text(charge.fee, charge.fee_currency))


def _missing_there(books: Books) -> Iterator[Mismatch]:
    rows = attempts_of(books.there.gone)
    for name in books.there.gone:
        row = rows[name]
        if row.state not in {AttemptState.CANCELED, AttemptState.FAILED}:
            amount, _ = gateway_amounts.to_stripe(row.amount, row.currency)
            ours = f"{amount_text(amount, row.currency)}, {row.get_state_display()}"
            yield _row(row, DifferenceKind.MISSING_THERE, name, row.created_at, ours, "no such payment")


def _paid_twice(books: Books) -> Iterator[Mismatch]:
    """More than one payment of an invoice that has more than it asks for: something is to be given back."""
    several: dict[int, list[PaymentAttempt]] = defaultdict(list)
    paid = [row.invoice_id for row in books.attempts.values() if row.state == AttemptState.SUCCEEDED]
    rows = PaymentAttempt.objects.filter(
        state=AttemptState.SUCCEEDED, invoice__in=[invoice for invoice in paid if invoice]
    )
    for row in rows.select_related("invoice", "tenant").order_by("settled_at"):
        several[row.invoice_id or 0].append(row)
    for payments in several.values():
        newest, invoice = payments[-1], payments[-1].invoice
        if len(payments) < 2 or invoice is None:
            continue
        stand = settlement.load_balance(invoice=invoice, on=books.moment.date())
        if stand.due.minor < 0:
            ours = f"{(-stand.due).text} {invoice.currency} more than {invoice} asks for"
            theirs = (
                f"{len(payments)} payments: {', '.join(payment.external_id or '' for payment in payments)}"
            )
            at = newest.settled_at or newest.created_at
            yield _row(newest, DifferenceKind.PAID_TWICE, newest.external_id or "", at, ours, theirs)


def _refunds(books: Books) -> Iterator[Mismatch]:
    rows = {row.external_id: row for row in _rows_of_refunds(books)}
    asking = set(refunds.list_unexplained().values_list("external_id", flat=True))
    for refund in books.there.refunds:
        attempt, row = books.attempts.get(refund.charge), rows.pop(refund.id, None)
        if attempt is None:
            continue  # its payment is what is missing
        theirs = f"{amount_text(refund.amount, refund.currency)}, {refund.state}"
        at = moment_of(refund.created)
        if row is None:
            if books.moment - at > SETTLING:
                yield _row(attempt, DifferenceKind.MISSING_HERE, refund.id, at, "No row.", theirs)
            continue
        ours = amount_text(gateway_amounts.to_stripe(row.amount, attempt.currency)[0], attempt.currency)
        if refund.amount != gateway_amounts.to_stripe(row.amount, attempt.currency)[0]:
            yield _row(
                attempt,
                DifferenceKind.AMOUNT,
                refund.id,
                at,
                ours,
                amount_text(refund.amount, refund.currency),
            )
        if row.state != refund.state.value and books.moment - at > SETTLING:
            yield _row(
                attempt, DifferenceKind.STATUS, refund.id, at, row.get_state_display(), str(refund.state)
            )
        stands = refund.state.value in {RefundState.PENDING, RefundState.SUCCEEDED}
        if stands and refund.id in asking:
            ours = f"{ours}, below no credit note"
            yield _row(attempt, DifferenceKind.REFUND_WITHOUT_NOTE, refund.id, at, ours, theirs)
    for name, row in rows.items():
        ours = amount_text(
            gateway_amounts.to_stripe(row.amount, row.attempt.currency)[0], row.attempt.currency
        )
        yield _row(
            row.attempt, DifferenceKind.MISSING_THERE, name or "", row.created_at, ours, "no such refund"
        )


def _rows_of_refunds(books: Books) -> QuerySet[PaymentRefund]:
    """Those that were read, and those that should have been; not of the first day, as clocks differ."""
    read = Q(external_id__in=[refund.id for refund in books.there.refunds])
    due = Q(created_at__gte=books.since + gateway_access.CLOCKS_DIFFER, created_at__lte=books.until)
    rows = PaymentRefund.objects.filter(read | due, external_id__isnull=False)
    return rows.select_related("attempt")


def _disputes(books: Books) -> Iterator[Mismatch]:
    read = Q(external_id__in=[dispute.id for dispute in books.there.disputes])
    due = Q(opened_at__gte=books.since + gateway_access.CLOCKS_DIFFER, opened_at__lte=books.until)
    rows = PaymentDispute.objects.filter(read | due).select_related("attempt")
    missing = {row.external_id: row for row in rows}
    for dispute in books.there.disputes:
        attempt, row = books.attempts.get(dispute.charge), missing.pop(dispute.id, None)
        at = moment_of(dispute.created)
        if attempt is None or books.moment - at <= SETTLING:
            continue
        theirs = f"{amount_text(dispute.amount, dispute.currency)}, {dispute.state}"
        if row is None:
            yield _row(attempt, DifferenceKind.DISPUTE_UNKNOWN, dispute.id, at, "No row.", theirs)
        elif row.state != dispute.state.value:
            yield _row(
                attempt, DifferenceKind.STATUS, dispute.id, at, row.get_state_display(), str(dispute.state)
            )
    for name, row in missing.items():
        ours = amount_text(
            gateway_amounts.to_stripe(row.amount, row.attempt.currency)[0], row.attempt.currency
        )
        yield _row(row.attempt, DifferenceKind.MISSING_THERE, name, row.opened_at, ours, "no such dispute")


def _movements(books: Books) -> Iterator[Mismatch]:
    for movement in books.there.movements.values():
        if movement.kind in FEE_KINDS or movement.kind.startswith(OWN_KINDS) or movement.charge:
            continue  # what is about a charge is compared with that
        theirs = f"{amount_text(movement.amount, movement.currency)}, {movement.kind}"
        at = moment_of(movement.created)
        yield Mismatch(DifferenceKind.MOVEMENT_UNKNOWN, movement.id, at, "No row.", theirs)


def _payouts(books: Books) -> Iterator[Mismatch]:
    for payout in books.there.payouts:
        contents = books.there.contents.get(payout.id)
        if contents is None or payout.state in UNDONE:
            continue
        net = sum_of(payout, [books.there.movements[name] for name in contents])
        if net != payout.amount:
            at = moment_of(payout.created)
            ours = f"{amount_text(net, payout.currency)} in its lines"
            yield Mismatch(
                DifferenceKind.PAYOUT_SUM, payout.id, at, ours, amount_text(payout.amount, payout.currency)
            )


def sum_of(payout: Payout, contents: list[Movement]) -> int:
    """What a payout is made of comes to, after fees: all but its own line."""
    return sum(line.net for line in contents if line.source != payout.id and line.kind != "payout")


def _is_fresh(charge: Charge, books: Books) -> bool:
    return books.moment - moment_of(charge.settled or charge.created) <= SETTLING


def _of(row: PaymentAttempt, kind: DifferenceKind, charge: Charge, ours: str, theirs: str) -> Mismatch:
    return _row(row, kind, charge.id, moment_of(charge.created), ours, theirs)


def _row(
    row: PaymentAttempt, kind: DifferenceKind, name: str, at: datetime, ours: str, theirs: str
) -> Mismatch:
    return Mismatch(kind, name, at, ours, theirs, row.tenant_id, row.invoice_id)
