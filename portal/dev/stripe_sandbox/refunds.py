"""Refunds: never more than was paid and is left; some arrive later, some come back."""

from __future__ import annotations

from portal.dev.stripe_sandbox import balance, currencies, disputes, listing
from portal.dev.stripe_sandbox.cards import TestCard
from portal.dev.stripe_sandbox.errors import Json, invalid
from portal.dev.stripe_sandbox.payment_methods import behaviour
from portal.dev.stripe_sandbox.requests import Call, merged
from portal.dev.stripe_sandbox.state import State

CREATE = ("charge", "payment_intent", "amount", "reason", "metadata")
LATER = 180  # seconds until a slow refund arrives or comes back


def make(
    state: State,
    charge: Json,
    *,
    amount: int | None = None,
    reason: str | None = None,
    metadata: Json | None = None,
) -> Json:
    """Give back `amount` minor units of the charge, all that is left if none is told."""
    left = charge["amount"] - charge["amount_refunded"]
    refuse(state, charge, left, amount)
    refund_amount = left if amount is None else amount
    instrument = behaviour(state, state.get("payment_method", charge["payment_method"]))
    slow = not isinstance(instrument, TestCard) or instrument.refund == "later"
    refund = state.new(
        "refund",
        "re" if charge["id"].startswith("ch_") else "pyr",
        amount=refund_amount,
        charge=charge["id"],
        currency=charge["currency"],
        destination_details={"type": "card", "card": {"type": "refund", "reference_status": "pending"}},
        metadata=metadata or {},
        payment_intent=charge["payment_intent"],
        pending_reason="processing" if slow else None,
        reason=reason,
        status="pending" if slow else "succeeded",
    )
    booked = balance.book(
        state, amount=-refund_amount, charged=0, kind="refund", category="refund", source=refund
    )
    refund["balance_transaction"] = booked["id"]
    charge["amount_refunded"] += refund_amount
    charge["refunded"] = charge["amount_refunded"] == charge["amount"]
    state.emit("refund.created", refund)
    state.emit("charge.refunded", charge)
    if charge["refunded"]:
        disputes.satisfy(state, charge)
    if slow:
        state.later(state.now() + LATER, "refund_arrives", refund["id"])
    elif isinstance(instrument, TestCard) and instrument.refund == "fails":
        state.later(state.now() + LATER, "refund_fails", refund["id"])
    return refund


def refuse(state: State, charge: Json, left: int, amount: int | None) -> None:
    if charge["status"] != "succeeded":
        raise invalid(
            f"The charge {charge['id']} did not succeed, so there is nothing to refund.", param="charge"
        )
    if charge["disputed"] and not disputes.is_refundable(state, charge):
        raise invalid(
            f"Charge {charge['id']} has been charged back; cannot issue a refund.", code="charge_disputed"
        )
    if left == 0:
        raise invalid(f"Charge {charge['id']} has already been refunded.", code="charge_already_refunded")
    if amount is not None and amount < 1:
        raise invalid("Invalid positive integer", param="amount", code="parameter_invalid_integer")
    if amount is not None and amount > left:
        shown = currencies.shown
        raise invalid(
            f"Refund amount ({shown(amount, charge['currency'])}) is greater than unrefunded amount on charge "
            f"({shown(left, charge['currency'])})",
            param="amount",
        )


def refund_arrives(state: State, identifier: str) -> None:
    refund = state.get("refund", identifier)
    if refund["status"] == "pending":
        with state.updating(refund, "charge.refund.updated", "refund.updated"):
            refund |= {"status": "succeeded", "pending_reason": None}


def refund_fails(state: State, identifier: str) -> None:
    """The payer's bank sends the money back: it is ours again."""
    refund = state.get("refund", identifier)
    if refund["status"] not in {"pending", "succeeded"}:
        return
    charge = state.get("charge", refund["charge"])
    with state.updating(refund, "charge.refund.updated", "refund.updated", "refund.failed"):
        refund |= {"status": "failed", "failure_reason": "expired_or_canceled_card", "pending_reason": None}
        booked = balance.book(
            state,
            amount=refund["amount"],
            charged=0,
            kind="refund_failure",
            category="refund_failure",
            source=refund,
        )
        refund["failure_balance_transaction"] = booked["id"]
    charge["amount_refunded"] -= refund["amount"]
    charge["refunded"] = False


def create(call: Call) -> Json:
    state = call.state
    if ("charge" in call.params) == ("payment_intent" in call.params):
        raise invalid(
            "Give charge or payment_intent, one of them.", param="payment_intent", code="parameter_missing"
        )
    if "charge" in call.params:
        charge = state.named("charge", call.params["charge"], param="charge")
    else:
        intent = state.named("payment_intent", call.params["payment_intent"], param="payment_intent")
        if not intent["latest_charge"]:
            raise invalid(
                f"The PaymentIntent {intent['id']} has no charge to refund.", param="payment_intent"
            )
        charge = state.get("charge", intent["latest_charge"])
    return make(
        state,
        charge,
        amount=call.get("amount"),
        reason=call.get("reason"),
        metadata=merged({}, call.get("metadata")),
    )


retrieve = listing.named("refund")


def update(call: Call) -> Json:
    refund = retrieve(call)
    with call.state.updating(refund, "charge.refund.updated", "refund.updated"):
        refund["metadata"] = merged(refund["metadata"], call.params.get("metadata"))
    return refund


list_ = listing.listed("refund", "charge", "payment_intent")
