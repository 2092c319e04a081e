"""Charges of ours that this database forgot: a backup was restored, and the gateway went on."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from billing.models import AttemptState, Invoice, PaymentAttempt, TopUp, Wallet
from billing.payments import gateway_access
from billing.payments.gateway_access import UnmatchedObjectError
from billing.payments.gateways.base import Charge
from billing.rules import gateway_amounts


def recover_attempt(charge: Charge, key: UUID) -> PaymentAttempt:
    """A row for the charge, of the invoice or top-up that its tags name. Raises UnmatchedObjectError without one."""
    slug = charge.tags.get("ct_tenant", "")
    try:
        amount = gateway_amounts.from_stripe(charge.amount, charge.currency)
    except ValueError as error:
        raise UnmatchedObjectError("unmatched-charge", tenant=slug, reason=error) from error
    created_at = datetime.fromtimestamp(charge.created, UTC)
    invoice = _find_invoice(charge, slug)
    top_up = _recover_top_up(charge, slug, amount, created_at) if invoice is None and key.int else None
    tenant = invoice.tenant if invoice else top_up.tenant if top_up else None
    if tenant is None or not key.int:
        raise UnmatchedObjectError(
            "unmatched-document",
            tenant=slug,
            charge=charge.id,
            amount=charge.amount,
            currency=charge.currency,
            document=charge.tags.get("ct_number") or "a top-up",
        )
    return PaymentAttempt.objects.create(
        pk=key,
        tenant=tenant,
        invoice=invoice,
        top_up=top_up,
        amount=amount,
        currency=charge.currency,
        state=AttemptState.OFFERED,
        created_at=created_at,
        sent_at=created_at,
        external_id=charge.id,
    )


def _find_invoice(charge: Charge, slug: str) -> Invoice | None:
    return (
        Invoice.objects.filter(
            number=charge.tags.get("ct_number", ""),
            pk=_tagged_number(charge, "invoice") or 0,
            currency=charge.currency,
            tenant__slug=slug,
        )
        .select_related("tenant")
        .first()
    )


def _recover_top_up(charge: Charge, slug: str, amount: int, created_at: datetime) -> TopUp | None:
    """The top-up that it pays, made again where it was forgotten too, with its crossing: that fires no other."""
    name = gateway_access.tagged_row_id(charge.tags, "topup")
    wallet = Wallet.objects.filter(
        pk=_tagged_number(charge, "wallet") or 0, tenant__slug=slug, unit=charge.currency
    ).first()
    if wallet is None or not name.int:
        return None
    crossing = _tagged_number(charge, "crossing")
    if crossing is not None and wallet.top_ups.filter(crossing=crossing).exclude(pk=name).exists():
        crossing = None  # there is another one for it by now
    row, _ = TopUp.objects.get_or_create(
        pk=name,
        defaults={
            "tenant_id": wallet.tenant_id,
            "wallet": wallet,
            "amount": amount,
            "created_at": created_at,
            "requested_by": "found at the gateway",
            "crossing": crossing,
        },
    )
    return row if (row.wallet_id, row.amount) == (wallet.pk, amount) else None


def _tagged_number(charge: Charge, noun: str) -> int | None:
    text = charge.tags.get(f"ct_{noun}", "")
    return int(text) if text.isdecimal() and len(text) < 19 else None
