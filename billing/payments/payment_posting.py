"""Payments that a gateway moved, as rows beside those that arrived by bank transfer; each cause once."""

from __future__ import annotations

from datetime import date, datetime
from zoneinfo import ZoneInfo

from billing.models import (
    EntrySide,
    GrantKind,
    Invoice,
    MovedCredit,
    MovedMoney,
    Payment,
    PaymentAttempt,
    WalletGrant,
    WriteOff,
)
from billing.receivables import invoice_events, settlement
from billing.rules import gateway_amounts
from billing.rules.money import Money
from billing.rules.wallet import Piece
from billing.wallets import clawback, entries, grants, replay
from billing.wallets.entries import Booking
from billing.wallets.replay import Change

BY = "Stripe"


def lock_attempt(**name: object) -> PaymentAttempt | None:
    """The attempt of that name; its invoice is locked before it, as by everybody who counts what is paid."""
    ids = PaymentAttempt.objects.filter(**name).values_list("pk", "invoice").first()
    if ids is None:
        return None
    pk, invoice = ids
    if invoice is not None:
        Invoice.objects.select_for_update(no_key=True).get(pk=invoice)
    return (
        PaymentAttempt.objects.select_for_update(of=("self",))
        .select_related("invoice", "tenant", "top_up")
        .get(pk=pk)
    )


def book_charge(attempt: PaymentAttempt) -> None:
    """The money of a charge that succeeded: a payment of its invoice, or credit of its wallet."""
    if attempt.settled_at is None or attempt.external_id is None:
        raise TypeError("only what succeeded is booked")
    if attempt.top_up is not None:
        grants.grant(
            wallet=attempt.top_up.wallet,
            amount=attempt.amount,
            key=attempt.external_id,
            who=attempt.top_up.requested_by,
            moment=attempt.settled_at,
            why="Top-up",
            kind=GrantKind.TOP_UP,
        )
        return
    book_payment(attempt, attempt.amount, cause=attempt.external_id, at=attempt.settled_at)
    if attempt.invoice is not None:
        _write_off_residue(attempt.invoice, attempt.settled_at)


def _write_off_residue(invoice: Invoice, at: datetime) -> None:
    """What cannot be charged of a paid invoice, 0.004 of a dinar, is no debt that anybody is reminded of.

    It is told apart as written off; a transfer over it counts all the same.
    """
    on, step = _payment_day(invoice, at), gateway_amounts.step(invoice.currency)
    left = settlement.load_balance(invoice=invoice, on=on).due.minor
    if 0 < left < step and not invoice.write_offs.filter(undone_at=None).exists():
        least = Money.from_minor(step, invoice.currency).text
        WriteOff.objects.create(
            invoice=invoice,
            tenant_id=invoice.tenant_id,
            amount=left,
            on=on,
            reason=f"It is charged in steps of {least} {invoice.currency}.",
            by=BY,
        )


def book_payment(attempt: PaymentAttempt, amount: int, *, cause: str, at: datetime) -> None:
    """A payment of the attempt's invoice, negative where money went back; booked once for its cause.

    The rows of both are locked by whoever calls. One that was recorded by hand under the same name is that payment.
    """
    invoice = attempt.invoice
    if invoice is None:
        raise TypeError("a top-up pays for no invoice")
    if MovedMoney.objects.filter(cause=cause).exists():
        return
    payment, is_new = Payment.objects.get_or_create(
        invoice=invoice,
        amount=amount,
        received_on=_payment_day(invoice, at),
        reference=cause,
        defaults={"tenant_id": invoice.tenant_id, "recorded_by": BY},
    )
    MovedMoney.objects.create(payment=payment, attempt=attempt, cause=cause)
    if is_new:
        invoice_events.record_paid({invoice.pk: amount})


def book_credit(attempt: PaymentAttempt, amount: int, *, cause: str, at: datetime) -> None:
    """Credit of the attempt's top-up that goes back (below zero), or comes again; booked once for its cause.

    The attempt's row is locked by whoever calls. What was spent of it already leaves the wallet below zero: that
    debt stays until other credit pays it.
    """
    if attempt.top_up is None:
        raise TypeError("only the money of a top-up was credited")
    if MovedCredit.objects.filter(cause=cause).exists():
        return
    wallet = entries.locked([attempt.top_up.wallet_id])[attempt.top_up.wallet_id]
    memo = f"Top-up {'given back' if amount < 0 else 'came back'}"
    grant = WalletGrant.objects.filter(wallet=wallet, key=attempt.external_id).first()
    if grant is not None:
        clawback.take_back(grant=grant, amount=-amount, why=memo, moment=at)
    else:
        day = at.astimezone(wallet.tenant.zone).date()
        moved = Booking([Piece(None, amount)], EntrySide.GRANTED, at, memo=memo, day=day)
        replay.settle(wallet=wallet, moment=at, change=Change(bookings=[moved], since=day))
    MovedCredit.objects.create(attempt=attempt, cause=cause, amount=amount, at=at)


def undo_credit(attempt: PaymentAttempt, cause: str, *, because: str, at: datetime) -> None:
    """Give again what went for this cause, once; nothing where nothing did."""
    gone = MovedCredit.objects.filter(cause=cause).first()
    if gone is not None:
        book_credit(attempt, -gone.amount, cause=f"{cause} {because}", at=at)


def _payment_day(invoice: Invoice, at: datetime) -> date:
    return at.astimezone(ZoneInfo(invoice.timezone)).date()


def is_booked(cause: str) -> bool:
    """Whether the movement of that name at the gateway has been booked. One query."""
    return MovedMoney.objects.filter(cause=cause).exists()
