"""Disputes: a payer's bank takes a payment back, with a fee, until it is decided."""

from __future__ import annotations

import copy

from portal.dev.stripe_sandbox import balance, listing
from portal.dev.stripe_sandbox.clock import DAY
from portal.dev.stripe_sandbox.errors import Json, invalid
from portal.dev.stripe_sandbox.requests import Call, merged
from portal.dev.stripe_sandbox.state import State

FEE = 1500  # minor units
ANSWER_WITHIN = 7 * DAY
ENDED = {"won", "lost", "warning_closed"}
INQUIRY = {"warning_needs_response", "warning_under_review"}
ON_CARD: Json = {"brand": "visa", "case_type": "chargeback", "network": "visa", "network_reason_code": "10.4"}


def open_(
    state: State,
    charge: Json,
    *,
    reason: str = "fraudulent",
    amount: int | None = None,
    inquiry: bool = False,
) -> Json:
    """The bank of the payer takes `amount` back, all that is not refunded if none is told.

    As an inquiry it only asks, and the charge can still be refunded.
    """
    withdrawn = charge["amount"] - charge["amount_refunded"] if amount is None else amount
    dispute = state.new(
        "dispute",
        "du",
        amount=withdrawn,
        balance_transactions=[],
        charge=charge["id"],
        currency=charge["currency"],
        enhanced_eligibility_types=[],
        evidence={"uncategorized_text": None, "enhanced_evidence": {}},
        evidence_details={"due_by": state.now() + ANSWER_WITHIN, "has_evidence": False, "past_due": False}
        | {"submission_count": 0, "submission_method": "manual", "enhanced_eligibility": {}},
        is_charge_refundable=inquiry,
        metadata={},
        network_reason_code="10.4",
        payment_intent=charge["payment_intent"],
        payment_method_details={"type": "card", "card": dict(ON_CARD)},
        reason=reason,
        status="warning_needs_response" if inquiry else "needs_response",
    )
    if inquiry:
        dispute["payment_method_details"]["card"]["case_type"] = "inquiry"
    charge["disputed"] = True
    state.emit("charge.dispute.created", dispute)
    if not inquiry:
        _withdraw(state, dispute)
    return dispute


def _withdraw(state: State, dispute: Json) -> None:
    with state.updating(dispute, "charge.dispute.funds_withdrawn"):
        booked = balance.book(
            state,
            amount=-dispute["amount"],
            charged=FEE,
            kind="adjustment",
            category="dispute",
            source=dispute,
        )
        dispute["balance_transactions"].append(copy.deepcopy(booked))


def is_refundable(state: State, charge: Json) -> bool:
    """Not where a bank has taken it back."""
    return all(one["is_charge_refundable"] for one in state.all("dispute") if one["charge"] == charge["id"])


def escalate(state: State, dispute: Json) -> None:
    """The bank that asked takes the money after all."""
    if dispute["status"] in INQUIRY:
        with state.updating(dispute, "charge.dispute.updated"):
            dispute |= {"status": "needs_response", "is_charge_refundable": False}
            dispute["payment_method_details"]["card"]["case_type"] = "chargeback"
        _withdraw(state, dispute)


def satisfy(state: State, charge: Json) -> None:
    """What was refunded whole is asked about no more."""
    for dispute in state.all("dispute"):
        if dispute["charge"] == charge["id"] and dispute["status"] in INQUIRY:
            win(state, dispute)


def review(state: State, dispute: Json) -> None:
    """Evidence was handed in; the bank looks at it."""
    if dispute["status"] in {"needs_response", "warning_needs_response"}:
        with state.updating(dispute, "charge.dispute.updated"):
            dispute["status"] = dispute["status"].replace("needs_response", "under_review")


def win(state: State, dispute: Json) -> None:
    """The bank gives the amount back, and the fee stays with Stripe; one that only asked has nothing to give."""
    if dispute["status"] in ENDED:
        return
    if dispute["status"] in INQUIRY:
        with state.updating(dispute, "charge.dispute.closed"):
            dispute["status"] = "warning_closed"
        return
    with state.updating(dispute, "charge.dispute.closed"):
        dispute["status"] = "won"
    with state.updating(dispute, "charge.dispute.funds_reinstated"):
        booked = balance.book(
            state,
            amount=dispute["amount"],
            charged=0,
            kind="adjustment",
            category="dispute_reversal",
            source=dispute,
        )
        dispute["balance_transactions"].append(copy.deepcopy(booked))


def lose(state: State, dispute: Json) -> None:
    """The amount and the fee are gone."""
    if dispute["status"] in ENDED:
        return
    escalate(state, dispute)
    with state.updating(dispute, "charge.dispute.closed"):
        dispute["status"] = "lost"


retrieve = listing.named("dispute", param="dispute")


def update(call: Call) -> Json:
    """Evidence that reads winning_evidence, losing_evidence or escalate_inquiry_evidence decides at once, as in
    Stripe's own sandboxes."""
    dispute = retrieve(call)
    if dispute["status"] in ENDED:
        raise invalid("This dispute is already closed and takes no more evidence.", param="evidence")
    dispute["metadata"] = merged(dispute["metadata"], call.params.get("metadata"))
    if evidence := call.get("evidence"):
        dispute["evidence"] = {**dispute["evidence"], **evidence}
        dispute["evidence_details"]["has_evidence"] = True
        if call.get("submit", True):
            dispute["evidence_details"]["submission_count"] += 1
            review(call.state, dispute)
            text = evidence.get("uncategorized_text")
            if text == "winning_evidence":
                win(call.state, dispute)
            elif text == "losing_evidence":
                lose(call.state, dispute)
            elif text == "escalate_inquiry_evidence":
                escalate(call.state, dispute)
    return dispute


def close(call: Call) -> Json:
    """Accepted, that is lost."""
    dispute = retrieve(call)
    lose(call.state, dispute)
    return dispute


list_ = listing.listed("dispute", "charge", "payment_intent")
