"""Payment intents: created, confirmed, canceled."""

from __future__ import annotations

import re

from portal.dev.stripe_sandbox import currencies, listing
from portal.dev.stripe_sandbox.confirming import confirm
from portal.dev.stripe_sandbox.errors import ApiError, Json, invalid
from portal.dev.stripe_sandbox.payment_methods import usable
from portal.dev.stripe_sandbox.requests import Call, merged
from portal.dev.stripe_sandbox.state import State

PLAIN = (
    "description", "receipt_email", "setup_future_usage", "shipping", "statement_descriptor",
    "statement_descriptor_suffix", "transfer_group", "allowed_payment_method_types",
)  # fmt: skip
CREATE = (
    *PLAIN, "amount", "currency", "customer", "payment_method", "confirm", "off_session", "metadata", "return_url",
    "error_on_requires_action", "automatic_payment_methods", "capture_method", "confirmation_method",
    "excluded_payment_method_types", "use_stripe_sdk",
)  # fmt: skip
CONFIRM = (
    "payment_method", "off_session", "return_url", "error_on_requires_action", "receipt_email",
    "setup_future_usage", "use_stripe_sdk", "allowed_payment_method_types",
)  # fmt: skip
UPDATE = (*PLAIN, "amount", "currency", "customer", "payment_method", "metadata")
OPEN = ("requires_payment_method", "requires_confirmation", "requires_action")
CANCELABLE = ("requires_payment_method", "requires_capture", "requires_confirmation", "requires_action")


def unexpected(verb: str, intent: Json, allowed: tuple[str, ...]) -> ApiError:
    refused = invalid(
        f"You cannot {verb} this PaymentIntent because it has a status of {intent['status']}. "
        f"Only a PaymentIntent with one of the following statuses can be: {', '.join(allowed)}.",
        code="payment_intent_unexpected_state",
    )
    refused.error["payment_intent"] = dict(intent)
    return refused


def types_of(currency: str, allowed: list[str] | None) -> list[str]:
    usual = ["card", "sepa_debit"] if currency == "eur" else ["card"]
    return usual if allowed is None else [one for one in usual if one in allowed]


def make(state: State, *, amount: int, currency: str, customer: str | None, **fields: object) -> Json:
    """A new intent that nobody paid yet."""
    currencies.check(amount, currency)
    allowed = fields.get("allowed_payment_method_types")
    types = types_of(currency, allowed if isinstance(allowed, list) else None)
    if not types:
        raise invalid(
            f"None of the allowed payment method types can take {currency}.",
            param="allowed_payment_method_types",
        )
    intent = state.new(
        "payment_intent",
        "pi",
        amount=amount,
        amount_capturable=0,
        amount_received=0,
        capture_method="automatic_async",
        confirmation_method="automatic",
        currency=currency,
        customer=customer,
        payment_method_types=types,
        status="requires_payment_method",
        **fields,
    )
    intent["client_secret"] = f"{intent['id']}_secret_{state.new_id('x')[2:]}"
    intent["automatic_payment_methods"] = {"enabled": True, "allow_redirects": "always"}
    state.emit("payment_intent.created", intent)
    return intent


def create(call: Call) -> Json:
    state, params = call.state, call.params
    if params.get("capture_method", "automatic_async") == "manual":
        raise invalid("The sandbox captures at once; leave capture_method out.", param="capture_method")
    if "off_session" in params and not params.get("confirm"):
        raise invalid("off_session can only be given together with confirm=true.", param="off_session")
    customer = call.get("customer")
    if customer:
        state.named("customer", customer, param="customer")
    currencies.check(params["amount"], params["currency"])
    method = None
    if chosen := call.get("payment_method"):
        method = usable(state, chosen, customer=customer)
    if params.get("confirm"):
        if method is None:
            raise without_method()
        need_return_url(call)
    check_texts(call)
    fields = call.fields(*PLAIN)
    if method is not None:
        refuse_type(types_of(params["currency"], params.get("allowed_payment_method_types")), method)
    intent = make(
        state,
        amount=params["amount"],
        currency=params["currency"],
        customer=customer,
        metadata=merged({}, call.get("metadata")),
        **fields,
    )
    if params.get("automatic_payment_methods"):
        intent["automatic_payment_methods"] = {"allow_redirects": "always"} | params[
            "automatic_payment_methods"
        ]
    if method is not None:
        intent |= {"payment_method": method["id"], "status": "requires_confirmation"}
        if params.get("confirm"):
            confirm_with_params(call, intent, method)
    return intent


def need_return_url(call: Call) -> None:
    """On session, some methods send people elsewhere, so Stripe wants to know where they come back to."""
    params = call.params
    automatic = params.get("automatic_payment_methods") or {}
    cards_only = params.get("allowed_payment_method_types") == ["card"]
    if (
        params.get("off_session")
        or params.get("return_url")
        or cards_only
        or params.get("error_on_requires_action")
    ):
        return
    if automatic.get("allow_redirects") != "never":
        raise invalid(
            "Some payment methods send people to another page: give a return_url, or forbid it by "
            "automatic_payment_methods[allow_redirects]=never.",
            param="return_url",
        )


def without_method() -> ApiError:
    return invalid(
        "You cannot confirm this PaymentIntent because it's missing a payment method.",
        code="payment_intent_unexpected_state",
        param="payment_method",
    )


def refuse_type(types: list[str], method: Json) -> None:
    if method["type"] not in types:
        raise invalid(
            f"The payment method type {method['type']} is not one of this intent's: {', '.join(types)}.",
            param="payment_method",
        )


def check_texts(call: Call) -> None:
    """What card networks print on statements, and addresses that mail can reach."""
    suffix = call.get("statement_descriptor_suffix")
    if suffix and (len(suffix) > 22 or set(suffix) & set("<>\\'\"*") or not re.search("[A-Za-z]", suffix)):
        raise invalid(
            "The statement descriptor suffix has at most 22 characters, a letter among them, and none of <>\\'\"*.",
            param="statement_descriptor_suffix",
        )
    check_email(call, "receipt_email")


def check_email(call: Call, name: str) -> None:
    email = call.get(name)
    if email and not re.fullmatch(r"[^@\s]+@[^@\s]+\.[^@\s]+", email):
        raise invalid(f"Invalid email address: {email}", param=name, code="email_invalid")


def confirm_with_params(call: Call, intent: Json, method: Json) -> None:
    confirm(
        call.state,
        intent,
        method,
        off_session=bool(call.params.get("off_session")),
        return_url=call.get("return_url"),
        refuse_action=bool(call.params.get("error_on_requires_action")),
    )


retrieve = listing.named("payment_intent", param="intent")


def update(call: Call) -> Json:
    state, intent = call.state, retrieve(call)
    if intent["status"] not in OPEN and set(call.params) - {"metadata", "description"}:
        raise unexpected("update", intent, OPEN)
    customer = call.get("customer") or intent["customer"]
    if call.get("customer"):
        state.named("customer", customer, param="customer")
    amount, currency = call.get("amount", intent["amount"]), call.get("currency", intent["currency"])
    currencies.check(amount, currency)
    if chosen := call.get("payment_method"):
        method = usable(state, chosen, customer=customer)
        refuse_type(intent["payment_method_types"], method)
        intent |= {"payment_method": method["id"], "status": "requires_confirmation"}
    intent |= call.fields(*PLAIN) | {"amount": amount, "currency": currency, "customer": customer}
    intent["metadata"] = merged(intent["metadata"], call.params.get("metadata"))
    return intent


def confirm_(call: Call) -> Json:
    state, intent = call.state, retrieve(call)
    if intent["status"] not in OPEN:
        raise unexpected("confirm", intent, OPEN)
    chosen = call.get("payment_method") or intent["payment_method"]
    if not chosen:
        raise without_method()
    method = usable(state, chosen, customer=intent["customer"])
    refuse_type(intent["payment_method_types"], method)
    need_return_url(call)
    intent |= call.fields("receipt_email", "setup_future_usage")
    confirm_with_params(call, intent, method)
    return intent


def cancel(call: Call) -> Json:
    intent = retrieve(call)
    if intent["status"] not in CANCELABLE:
        raise unexpected("cancel", intent, CANCELABLE)
    session = call.state.find("checkout.session", call.state.hidden(intent["id"]).get("session"))
    if session is not None and session["status"] == "open":
        raise invalid(
            f"This PaymentIntent belongs to the Checkout Session {session['id']}: expire that instead."
        )
    return cancel_intent(call.state, intent, reason=call.get("cancellation_reason"))


def cancel_intent(state: State, intent: Json, *, reason: str | None) -> Json:
    intent |= {"status": "canceled", "canceled_at": state.now(), "cancellation_reason": reason}
    intent["next_action"] = None
    state.emit("payment_intent.canceled", intent)
    return intent


list_ = listing.listed("payment_intent", "customer")
