"""Charges: one for each try to take money, succeeded, pending or failed."""

from __future__ import annotations

from portal.dev.stripe_sandbox import balance, disputes, listing
from portal.dev.stripe_sandbox.cards import Decline, TestCard
from portal.dev.stripe_sandbox.errors import Json
from portal.dev.stripe_sandbox.payment_methods import behaviour
from portal.dev.stripe_sandbox.requests import Call, merged
from portal.dev.stripe_sandbox.state import State

APPROVED: Json = {
    "advice_code": None,
    "network_advice_code": None,
    "network_decline_code": None,
    "network_status": "approved_by_network",
    "reason": None,
    "risk_level": "normal",
    "seller_message": "Payment complete.",
    "type": "authorized",
}


def try_(state: State, intent: Json, method: Json, *, status: str) -> Json:
    """A charge of the intent's whole amount, in that status; its money is booked by `settle`."""
    paid = status == "succeeded"
    charge = state.new(
        "charge",
        "ch" if method["type"] == "card" else "py",
        amount=intent["amount"],
        amount_captured=intent["amount"] if status != "failed" else 0,
        amount_refunded=0,
        billing_details=method["billing_details"],
        captured=status != "failed",
        currency=intent["currency"],
        customer=intent["customer"],
        description=intent["description"],
        disputed=False,
        fraud_details={},
        metadata=dict(intent["metadata"]),
        outcome=dict(APPROVED),
        paid=paid,
        payment_intent=intent["id"],
        payment_method=method["id"],
        payment_method_details=details(method),
        receipt_email=intent["receipt_email"],
        refunded=False,
        statement_descriptor=intent["statement_descriptor"],
        statement_descriptor_suffix=intent["statement_descriptor_suffix"],
        calculated_statement_descriptor="CLUSTERTAB SANDBOX",
        status=status,
    )
    intent["latest_charge"] = charge["id"]
    return charge


def details(method: Json) -> Json:
    shown = method[method["type"]]
    names = (
        "brand",
        "country",
        "exp_month",
        "exp_year",
        "fingerprint",
        "funding",
        "last4",
        "bank_code",
        "checks",
    )
    return {"type": method["type"], method["type"]: {name: shown[name] for name in names if name in shown}}


def settle(state: State, charge: Json, *, event: bool = True) -> None:
    """The money came: book it with its fee."""
    charge |= {"status": "succeeded", "paid": True}
    booked = balance.book(
        state,
        amount=charge["amount"],
        charged=balance.fee(charge["amount"]),
        kind="charge" if charge["id"].startswith("ch_") else "payment",
        category="charge",
        source=charge,
        settled_after=balance.SETTLED_AFTER,
    )
    charge["balance_transaction"] = booked["id"]
    if event:
        state.emit("charge.succeeded", charge)
    method = state.find("payment_method", charge["payment_method"])
    if method is None:
        return
    instrument = behaviour(state, method)
    if instrument.dispute:
        asks = isinstance(instrument, TestCard) and instrument.inquiry
        disputes.open_(state, charge, reason=instrument.dispute, inquiry=asks)


def fail(state: State, charge: Json, decline: Decline) -> None:
    charge |= {"status": "failed", "paid": False, "captured": False, "amount_captured": 0}
    charge |= {"failure_code": decline.code, "failure_message": decline.message}
    charge["outcome"] = APPROVED | {
        "advice_code": decline.advice_code,
        "network_decline_code": decline.network_code,
        "network_status": "declined_by_network",
        "reason": decline.decline_code,
        "seller_message": "The bank did not approve this payment.",
        "type": "issuer_declined",
    }
    state.emit("charge.failed", charge)


retrieve = listing.named("charge", param="charge")


def update(call: Call) -> Json:
    charge = retrieve(call)
    with call.state.updating(charge, "charge.updated"):
        charge |= call.fields("description", "receipt_email")
        charge["metadata"] = merged(charge["metadata"], call.params.get("metadata"))
    return charge


list_ = listing.listed("charge", "customer", "payment_intent")
