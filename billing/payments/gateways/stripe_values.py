"""Stripe's objects, as plain mappings, into our values. Source: Stripe's API reference, 2026-10-28."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, TypeGuard

from billing.payments.gateways.base import (
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
from portal.excerpt import quoted

Object = Mapping[str, Any]

UNREAD: Final = "not understood"
LONGEST: Final = 100  # characters of an id or a type of Stripe's
LONGEST_KIND: Final = 60
LAST_SECOND: Final = 10**11

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
        paid_with=_paid_with(newest.get("payment_method_details") or _inner(error, "payment_method")),
        confirm_at=_inner(_inner(of, "next_action"), "redirect_to_url").get("url") or "",
    )


def _paid_with(details: Object) -> str:
    """`Visa ending in 4242`; "" where nothing is told."""
    kind = details.get("type") or ""
    instrument = _inner(details, kind)
    name = (
        "Bank account"
        if kind == "sepa_debit"
        else (instrument.get("brand") or kind).replace("_", " ").title()
    )
    return f"{name} ending in {instrument['last4']}" if instrument.get("last4") else name


def _settled(newest: Object, balance: Object) -> int | None:
    """A card's charge is made as it is paid. A debit's is made when it is handed in, and its money is booked days
    later, with its balance transaction."""
    kind = (newest.get("payment_method_details") or {}).get("type")
    source = newest if kind == "card" else balance
    return source.get("created")


def _without_method(error: Object) -> ChargeState:
    """What `requires_payment_method` means: untried, to be confirmed by its owner, or refused."""
    if not error:
        return ChargeState.OPEN
    auth_code = "authentication_required"
    if auth_code in {error.get("code"), error.get("decline_code")}:
        return ChargeState.NEEDS_ACTION
    return ChargeState.FAILED


def method(of: Object) -> Method:
    """What may be shown of a PaymentMethod; no number is in it, and none is asked for."""
    kind = of["type"]
    instrument = of.get(kind) or {}
    return Method(
        id=of["id"],
        kind=kind,
        customer=id_of(of.get("customer")),
        brand=instrument.get("brand") or instrument.get("bank_code") or "",
        last4=instrument.get("last4") or "",
        exp_month=instrument.get("exp_month"),
        exp_year=instrument.get("exp_year"),
        fingerprint=instrument.get("fingerprint") or "",
    )


def session(of: Object) -> Session:
    """A Checkout Session; what was saved on it, or paid with, where its intent is expanded."""
    intent = _inner(of, "setup_intent") or _inner(of, "payment_intent")
    return Session(
        id=of["id"],
        state=SessionState(of["status"] or "open"),
        url=of.get("url") or "",
        expires=of["expires_at"],
        tags=of.get("metadata") or {},
        customer=id_of(of.get("customer")),
        charge=id_of(of.get("payment_intent")),
        method=id_of(intent.get("payment_method")),
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
        fee=sum(movement.get("fee", 0) for movement in of.get("balance_transactions") or []),
    )


def event(of: object) -> Event:
    """An Event: which object it is about, and nothing of what it says of that. Of any other shape, `unread`."""
    payload = of if isinstance(of, Mapping) else {}
    about = _inner(_inner(payload, "data"), "object")
    name, created, live = payload.get("id"), payload.get("created"), payload.get("livemode")
    tags = about.get("metadata") or {}
    texts = [payload.get("type"), about.get("id") or "", about.get("object") or ""]
    if not _is_name(name) or not name:
        return _unread(of, "it has no id")
    if not isinstance(created, int) or not 0 <= created < LAST_SECOND or not isinstance(live, bool):
        return _unread(of, "it does not say when it was, or in which mode", name)
    kind, about_id, about_kind = (text if _is_name(text) else None for text in texts)
    if not about or not kind or about_id is None or about_kind is None or len(about_kind) > LONGEST_KIND:
        return _unread(of, "it does not say what happened to which object", name)
    if not isinstance(tags, Mapping) or not all(isinstance(tag, str) for tag in tags.values()):
        return _unread(of, "its object has metadata that are no texts", name)
    return Event(
        id=name,
        type=kind,
        created=created,
        live=live,
        object_id=about_id,
        object_kind=about_kind,
        tags=tags,
    )


def _unread(of: object, reason: str, name: str = "") -> Event:
    """The same again has the same id."""
    name = name or f"unread {sha256(repr(of).encode('utf-8', 'backslashreplace')).hexdigest()[:40]}"
    sentence = (
        f"It is not understood: {reason}. Look it up in Stripe's dashboard; it begins {quoted(repr(of))}."
    )
    return Event(id=name, type=UNREAD, created=0, live=False, object_id="", object_kind="", unread=sentence)


def _is_name(value: object) -> TypeGuard[str]:
    """Whether it is a text that is kept as it is."""
    return isinstance(value, str) and len(value) <= LONGEST and (value.isprintable() or not value)


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


def id_of(reference: object) -> str:
    """The id of an object that is given by its id or whole; '' for none."""
    if isinstance(reference, Mapping):
        return str(reference.get("id") or "")
    return str(reference or "")


def _inner(of: Object, name: str) -> Object:
    value = of.get(name)
    return value if isinstance(value, Mapping) else {}
