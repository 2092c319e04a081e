"""Booking a transfer on what it pays, and taking that back when its money went.

For callers that hold the locks of the tenants, then of the transfer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

from billing.catalog.tenant_lock import lock
from billing.models import Archive, GrantKind, Invoice, Payment, Transfer, TransferPart, TransferState, Wallet
from billing.receivables import credit_balance, settlement
from billing.rules.money import Money
from billing.wallets import clawback, grants
from portal.core.tenants.models import Tenant

BY = "bank statement"


@dataclass(frozen=True, slots=True)
class InvoiceShare:
    """A share of a transfer that pays an invoice."""

    invoice: Invoice
    amount: int  # minor units, as everywhere here


@dataclass(frozen=True, slots=True)
class CreditShare:
    """A share that becomes credit of a tenant."""

    tenant: Tenant
    amount: int


@dataclass(frozen=True, slots=True)
class WalletShare:
    """A share that tops a wallet up."""

    wallet: Wallet
    amount: int


Share = InvoiceShare | CreditShare | WalletShare


def book_transfer(row: Transfer, shares: Sequence[Share], *, by: str, at: datetime) -> None:
    """Book the transfer on these shares, which add up to it. What goes to a credit balance pays what is due there."""
    if sum(share.amount for share in shares) != row.amount:
        raise ValueError("The shares do not add up to the transfer.")
    turn = row.parts.filter(amount__gt=0).count()
    for share in shares:
        match share:
            case InvoiceShare():
                _book_on_invoice(row, share, by, at, turn)
            case CreditShare():
                _book_on_credit(row, share, by, at)
            case WalletShare():
                _book_on_wallet(row, share, at, turn)
    _decide(row, TransferState.BOOKED, "", by, at)
    for share in shares:
        if isinstance(share, CreditShare):
            credit_balance.use_credit(tenant=share.tenant, currency=row.currency, at=at, on=row.booked_on)


def undo_booking(
    row: Transfer, *, state: TransferState, reason: str, by: str, at: datetime, on: date
) -> None:
    """Take back all that the transfer was booked on: invoices are due again, credit and wallets lose it."""
    name = payment_reference(row)
    went = "went back" if state == TransferState.RETURNED else "taken back"
    for part in row.parts.filter(amount__gt=0, undone_by=None).select_related(
        "payment__invoice", "credit", "grant__wallet", "tenant"
    ):
        fields = {"transfer": row, "tenant_id": part.tenant_id, "amount": -part.amount, "undoes": part}
        if part.payment is not None:
            back = settlement.record_payment(
                invoice=part.payment.invoice,
                amount=Money.from_minor(-part.amount, row.currency),
                received_on=on,
                reference=f"{part.payment.reference[:180]} {went}",
                recorded_by=by,
            )
            TransferPart.objects.create(payment=back, **fields)
        elif part.credit is not None:
            credit = credit_balance.withdraw_credit(
                tenant=part.tenant,
                currency=row.currency,
                amount=part.amount,
                memo=f"{name}: {reason}",
                at=at,
                on=on,
            )
            TransferPart.objects.create(credit=credit, **fields)
        elif part.grant is not None:
            clawback.take_back(grant=part.grant, amount=part.amount, why=f"{name}: {reason}", moment=at)
            TransferPart.objects.create(grant=part.grant, **fields)
    _decide(row, state, reason, by, at)


def payable_amount(invoice: Invoice, on: date) -> int:
    """What can still be paid of an invoice in minor units: what was written off too, should it come after all."""
    stand = settlement.load_balance(invoice=invoice, on=on)
    return stand.due.minor + stand.written_off.minor


def describe_departure(tenant: Tenant) -> str:
    """Why nothing becomes the tenant's that nobody would ever use, in a sentence; "" where it has not left.

    For a caller that holds the tenant's lock: it is archived under that.
    """
    archive = Archive.objects.filter(tenant=tenant).first()
    if archive is None:
        return ""
    since = f"{archive.at:%Y-%m-%d}"
    return f"{tenant} has left, and is archived since {since}: send it back at the bank, and set it aside."


def payment_reference(row: Transfer, turn: int = 0) -> str:
    """What its payments are called: as the bank does, or by its own number. Counted where it was booked before."""
    name = row.bank_reference or f"Transfer {row.pk}"
    return name[:180] if not turn else f"{name[:180]} ({turn + 1})"


def _book_on_invoice(row: Transfer, share: InvoiceShare, by: str, at: datetime, turn: int) -> None:
    settlement.check_day(invoice=share.invoice, received_on=row.booked_on, at=at)
    payment = settlement.record_payment(
        invoice=share.invoice,
        amount=Money.from_minor(share.amount, row.currency),
        received_on=row.booked_on,
        reference=_free_reference(share.invoice, row, turn),
        recorded_by=by,
    )
    TransferPart.objects.create(
        transfer=row, tenant_id=share.invoice.tenant_id, amount=share.amount, payment=payment
    )


def _free_reference(invoice: Invoice, row: Transfer, turn: int) -> str:
    """Its name, unless that is the payment of another transfer: a payment that was recorded by hand is this one."""
    name = payment_reference(row, turn)
    payments = Payment.objects.filter(invoice=invoice, reference=name, transfer_part__isnull=False)
    return f"{name[:150]}, transfer {row.pk}" if payments.exists() else name


def _book_on_credit(row: Transfer, share: CreditShare, by: str, at: datetime) -> None:
    lock(share.tenant)
    entry = credit_balance.receive_credit(
        tenant=share.tenant,
        currency=row.currency,
        amount=share.amount,
        memo=f"Transfer of {row.booked_on}",
        by=by,
        at=at,
    )
    TransferPart.objects.create(transfer=row, tenant=share.tenant, amount=share.amount, credit=entry)


def _book_on_wallet(row: Transfer, share: WalletShare, at: datetime, turn: int) -> None:
    grant = grants.grant(
        wallet=share.wallet,
        amount=share.amount,
        key=f"transfer {row.pk}" if not turn else f"transfer {row.pk} ({turn + 1})",
        who=row.payer or BY,
        moment=at,
        why=f"Top-up by transfer of {row.booked_on}",
        kind=GrantKind.TOP_UP,
    )
    TransferPart.objects.create(
        transfer=row, tenant_id=share.wallet.tenant_id, amount=share.amount, grant=grant
    )


def _decide(row: Transfer, state: TransferState, reason: str, by: str, at: datetime) -> None:
    row.state, row.reason, row.decided_by, row.decided_at = state, reason, by, at
    row.save()
