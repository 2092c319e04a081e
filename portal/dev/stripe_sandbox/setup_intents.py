"""Setup intents: a card is saved, with its owner's bank asked where it wants to be, and no money moves."""

from __future__ import annotations

from portal.dev.stripe_sandbox import listing
from portal.dev.stripe_sandbox.cards import Decline, TestCard, described, refused
from portal.dev.stripe_sandbox.errors import Json, invalid
from portal.dev.stripe_sandbox.payment_methods import attach_to, behaviour, usable
from portal.dev.stripe_sandbox.requests import Call, merged
from portal.dev.stripe_sandbox.state import State

CREATE = (
    "customer", "description", "metadata", "payment_method", "confirm", "usage", "return_url",
    "allowed_payment_method_types", "automatic_payment_methods", "use_stripe_sdk",
)  # fmt: skip
CONFIRM = ("payment_method", "return_url", "use_stripe_sdk")
UPDATE = ("customer", "description", "metadata", "payment_method")
OPEN = ("requires_payment_method", "requires_confirmation", "requires_action")
NOT_AUTHENTICATED = Decline(
    "setup_intent_authentication_failure",
    "authentication_not_handled",
    "The latest attempt to set up the payment method has failed because authentication failed.",
)


def make(state: State, *, customer: str | None, **fields: object) -> Json:
    intent = state.new(
        "setup_intent",
        "seti",
        customer=customer,
        payment_method_types=["card", "sepa_debit"],
        status="requires_payment_method",
        **{"usage": "off_session", **fields},
    )
    intent["client_secret"] = f"{intent['id']}_secret_{state.new_id('x')[2:]}"
    intent["automatic_payment_methods"] = {"enabled": True, "allow_redirects": "always"}
    state.emit("setup_intent.created", intent)
    return intent


def confirm(state: State, intent: Json, method: Json, *, return_url: str | None = None) -> None:
    """Save the method with the customer, ask the owner first, or raise the 402 of a decline."""
    intent |= {"payment_method": method["id"], "last_setup_error": None, "next_action": None}
    state.hidden(intent["id"])["return_url"] = return_url
    instrument = behaviour(state, method)
    if isinstance(instrument, TestCard) and instrument.decline and not instrument.saved:
        give_up(state, intent, described(instrument.decline, method=method))
        raise refused(instrument.decline, method=method, intent=intent)
    if isinstance(instrument, TestCard) and instrument.authentication in {"unless_set_up", "always"}:
        url = f"{state.base}/authenticate/{intent['id']}"
        kind = "redirect_to_url" if return_url else "use_stripe_sdk"
        action = {"return_url": return_url, "url": url} if return_url else {"stripe_js": url}
        intent |= {"status": "requires_action", "next_action": {"type": kind, kind: action}}
        state.emit("setup_intent.requires_action", intent)
        return
    succeed(state, intent, method)


def authenticated(state: State, intent: Json, *, passed: bool) -> None:
    method = state.get("payment_method", intent["payment_method"])
    intent["next_action"] = None
    if passed:
        succeed(state, intent, method)
    else:
        give_up(state, intent, described(NOT_AUTHENTICATED, method=method))


def succeed(state: State, intent: Json, method: Json) -> None:
    state.hidden(method["id"]).update(set_up=True, used=True)
    intent["status"] = "succeeded"
    if intent["customer"]:
        attach_to(state, method, intent["customer"])
    state.emit("setup_intent.succeeded", intent)


def give_up(state: State, intent: Json, error: Json) -> None:
    intent |= {"status": "requires_payment_method", "payment_method": None, "next_action": None}
    intent["last_setup_error"] = error
    state.emit("setup_intent.setup_failed", intent)


def create(call: Call) -> Json:
    state, customer = call.state, call.get("customer")
    if customer:
        state.named("customer", customer, param="customer")
    chosen = call.get("payment_method")
    method = usable(state, chosen, customer=customer) if chosen else None
    if call.get("confirm") and method is None:
        raise invalid(
            "You cannot confirm this SetupIntent because it's missing a payment method.", param="confirm"
        )
    fields = call.fields("description", "usage", "allowed_payment_method_types")
    intent = make(state, customer=customer, metadata=merged({}, call.get("metadata")), **fields)
    if method is not None:
        intent |= {"payment_method": method["id"], "status": "requires_confirmation"}
        if call.get("confirm"):
            confirm(state, intent, method, return_url=call.get("return_url"))
    return intent


retrieve = listing.named("setup_intent", param="intent")


def update(call: Call) -> Json:
    intent = retrieve(call)
    refuse_ended(intent, "update")
    if chosen := call.get("payment_method"):
        method = usable(call.state, chosen, customer=call.get("customer") or intent["customer"])
        intent |= {"payment_method": method["id"], "status": "requires_confirmation"}
    intent |= call.fields("customer", "description")
    intent["metadata"] = merged(intent["metadata"], call.params.get("metadata"))
    return intent


def refuse_ended(intent: Json, verb: str) -> None:
    if intent["status"] not in OPEN:
        raise invalid(
            f"You cannot {verb} this SetupIntent because it has a status of {intent['status']}.",
            code="setup_intent_unexpected_state",
        )


def confirm_(call: Call) -> Json:
    intent = retrieve(call)
    refuse_ended(intent, "confirm")
    chosen = call.get("payment_method") or intent["payment_method"]
    if not chosen:
        raise invalid(
            "You cannot confirm this SetupIntent because it's missing a payment method.",
            param="payment_method",
        )
    method = usable(call.state, chosen, customer=intent["customer"])
    confirm(call.state, intent, method, return_url=call.get("return_url"))
    return intent


def cancel(call: Call) -> Json:
    intent = retrieve(call)
    refuse_ended(intent, "cancel")
    intent |= {
        "status": "canceled",
        "cancellation_reason": call.get("cancellation_reason"),
        "next_action": None,
    }
    call.state.emit("setup_intent.canceled", intent)
    return intent


list_ = listing.listed("setup_intent", "customer", "payment_method")
