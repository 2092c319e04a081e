"""Stripe's objects, as plain mappings, into our values. Source: Stripe's API reference, 2026-10-28."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from billing.gateways.base import (
    Charge,
    ChargeState,
    Dispute,
    DisputeState,
    Event,
    Method,
    Movement,
    Payout,
    Refund,
    RefundState,
    Session,
    SessionState,
)

Object = Mapping[str, Any]

_CHARGES = {
    "requires_confirmation": ChargeState.OPEN,
    "requires_action": ChargeState.NEEDS_ACTION,
    "processing": ChargeState.PROCESSING,
    "requires_capture": ChargeState.PROCESSING,
    "succeeded": ChargeState.SUCCEEDED,
    "canceled": ChargeState.CANCELED,
}
_REFUNDS = {
    "pending": RefundState.PENDING,
    "requires_action": RefundState.PENDING,
    "succeeded": RefundState.SUCCEEDED,
    "failed": RefundState.FAILED,
    "canceled": RefundState.CANCELED,
}
_DISPUTES = {
    "warning_needs_response": DisputeState.INQUIRY,
    "warning_under_review": DisputeState.INQUIRY,
    "won": DisputeState.WON,
    "warning_closed": DisputeState.WON,
    "prevented": DisputeState.WON,
    "lost": DisputeState.LOST,
}


def charge(of: Object) -> Charge:
    """A PaymentIntent; its newest charge and balance transaction where they are expanded."""
    newest = _inner(of, "latest_charge")
    balance = _inner(newest, "balance_transaction")
    error = of.get("last_payment_error") or {}
    state = _CHARGES.get(of["status"]) or _without_method(error)
    return Charge(
        id=of["id"],
        state=state,
        amount=of["amount"],
        currency=of["currency"].upper(),
        created=of["created"],
        live=of["livemode"],
        customer=id_of(of.get("customer")),
        method=id_of(of.get("payment_method")) or id_of(error.get("payment_method")),
        tags=of.get("metadata") or {},
        code=error.get("decline_code") or error.get("code") or "",
        advice=error.get("advice_code") or "",
        message=error.get("message") or "",
        received=of.get("amount_received") or 0,
        refunded=newest.get("amount_refunded") or 0,
        disputed=bool(newest.get("disputed")),
        fee=balance.get("fee"),
        fee_currency=(balance.get("currency") or "").upper(),
        settled=_settled(newest, balance) if state is ChargeState.SUCCEEDED else None,
    )


def _settled(newest: Object, balance: Object) -> int | None:
    """A card's charge is made as it is paid. A debit's is made when it is handed in, and its money is booked days
    later, with its balance transaction."""
    kind = (newest.get("payment_method_details") or {}).get("type")
    told = newest if kind == "card" else balance
    return told.get("created")


def _without_method(error: Object) -> ChargeState:
    """What `requires_payment_method` means: untried, to be confirmed by its owner, or refused."""
    if not error:
        return ChargeState.OPEN
    asked = "authentication_required"
    if asked in {error.get("code"), error.get("decline_code")}:
        return ChargeState.NEEDS_ACTION
    return ChargeState.FAILED


def method(of: Object) -> Method:
    """What may be shown of a PaymentMethod; no number is in it, and none is asked for."""
    kind = of["type"]
    told = of.get(kind) or {}
    return Method(
        id=of["id"],
        kind=kind,
        customer=id_of(of.get("customer")),
        brand=told.get("brand") or told.get("bank_code") or "",
        last4=told.get("last4") or "",
        exp_month=told.get("exp_month"),
        exp_year=told.get("exp_year"),
        fingerprint=told.get("fingerprint") or "",
    )


def session(of: Object) -> Session:
    """A Checkout Session; the method that was saved on it where its SetupIntent is expanded."""
    setup = _inner(of, "setup_intent")
    return Session(
        id=of["id"],
        state=SessionState(of["status"] or "open"),
        url=of.get("url") or "",
        expires=of["expires_at"],
        tags=of.get("metadata") or {},
        customer=id_of(of.get("customer")),
        charge=id_of(of.get("payment_intent")),
        method=id_of(setup.get("payment_method")),
    )


def refund(of: Object) -> Refund:
    """A Refund. A state that we do not know is pending: money may still go."""
    return Refund(
        id=of["id"],
        charge=id_of(of.get("payment_intent")),
        state=_REFUNDS.get(of.get("status") or "", RefundState.PENDING),
        amount=of["amount"],
        currency=of["currency"].upper(),
        created=of["created"],
        tags=of.get("metadata") or {},
        reason=of.get("failure_reason") or "",
    )


def dispute(of: Object) -> Dispute:
    """A Dispute, with the fees that it cost so far. A state that we do not know is open."""
    return Dispute(
        id=of["id"],
        charge=id_of(of.get("payment_intent")),
        state=_DISPUTES.get(of["status"], DisputeState.OPEN),
        amount=of["amount"],
        currency=of["currency"].upper(),
        created=of["created"],
        reason=of.get("reason") or "",
        fee=sum(each.get("fee", 0) for each in of.get("balance_transactions") or []),
    )


def event(of: Object) -> Event:
    """An Event: which object it is about, and nothing of what it says of that."""
    about = of["data"]["object"]
    return Event(
        id=of["id"],
        type=of["type"],
        created=of["created"],
        live=of["livemode"],
        object_id=about.get("id") or "",
        object_kind=about.get("object") or "",
        tags=about.get("metadata") or {},
    )


def payout(of: Object) -> Payout:
    """A Payout; itemised once Stripe says that all its movements can be listed."""
    return Payout(
        id=of["id"],
        amount=of["amount"],
        currency=of["currency"].upper(),
        state=of["status"],
        arrives=of["arrival_date"],
        created=of["created"],
        itemised=of["automatic"] and of.get("reconciliation_status") == "completed",
    )


def movement(of: Object) -> Movement:
    """A balance transaction; what it is of where its source is expanded."""
    source = _inner(of, "source")
    return Movement(
        id=of["id"],
        kind=of["type"],
        source=id_of(of.get("source")),
        charge=id_of(source.get("payment_intent")),
        tags=source.get("metadata") or {},
        amount=of["amount"],
        fee=of["fee"],
        net=of["net"],
        currency=of["currency"].upper(),
        created=of["created"],
    )


def id_of(told: object) -> str:
    """The id of an object that is given by its id or whole; '' for none."""
    if isinstance(told, Mapping):
        return str(told.get("id") or "")
    return str(told or "")


def _inner(of: Object, name: str) -> Object:
    found = of.get(name)
    return found if isinstance(found, Mapping) else {}
