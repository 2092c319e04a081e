"""Checkout sessions: a page on which a person pays or saves a card, open for 24 hours."""

from __future__ import annotations

import re
from typing import Any

from portal.dev.stripe_sandbox import currencies, listing, paying, payment_intents, setup_intents
from portal.dev.stripe_sandbox.errors import ApiError, Json, invalid, not_modelled
from portal.dev.stripe_sandbox.requests import Call, merged
from portal.dev.stripe_sandbox.state import State

CREATE = (
    "mode", "line_items", "success_url", "cancel_url", "customer", "customer_email", "customer_creation",
    "client_reference_id", "metadata", "payment_intent_data", "setup_intent_data", "currency", "expires_at",
    "locale", "submit_type", "ui_mode", "allowed_payment_method_types", "saved_payment_method_options",
)  # fmt: skip
SHORTEST, LONGEST = 30 * 60, 24 * 3600  # seconds that a session is open
PAYMENT_DATA = {
    "description", "metadata", "setup_future_usage", "receipt_email", "transfer_group", "statement_descriptor",
    "statement_descriptor_suffix",
}  # fmt: skip
SAVED = {
    "allow_redisplay_filters": ["always"],
    "payment_method_remove": "disabled",
    "payment_method_save": "disabled",
}
"""What a session says of saved payment methods unless told otherwise."""


def create(call: Call) -> Json:
    state = call.state
    check(call)
    expires = call.get("expires_at") or state.now() + LONGEST
    if not SHORTEST <= expires - state.now() <= LONGEST:
        raise invalid("expires_at must be between 30 minutes and 24 hours from now.", param="expires_at")
    session = new_session(call, expires_at=expires, items=lines(call))
    if session["mode"] == "setup":
        intent_data = call.get("setup_intent_data") or {}
        fields = {name: value for name, value in intent_data.items() if name == "description"}
        metadata = merged({}, intent_data.get("metadata"))
        intent = setup_intents.make(state, customer=call.get("customer"), metadata=metadata, **fields)
        state.hidden(intent["id"])["session"] = session["id"]
        session["setup_intent"] = intent["id"]
    state.later(expires, "session_expires", session["id"])
    return session


def check(call: Call) -> None:
    """What can be said without looking at the items."""
    for name in ("mode", "success_url"):
        if name not in call.params:
            raise invalid(f"Missing required param: {name}.", param=name, code="parameter_missing")
    if call.params["mode"] == "subscription":
        raise not_modelled("mode=subscription", param="mode")
    if call.get("ui_mode", "hosted_page") != "hosted_page":
        raise not_modelled("other than hosted pages", param="ui_mode")
    for name in ("success_url", "cancel_url"):
        check_url(call, name)
    if len(call.get("client_reference_id") or "") > 200:
        raise invalid("client_reference_id has at most 200 characters.", param="client_reference_id")
    payment_intents.check_email(call, "customer_email")
    if customer := call.get("customer"):
        call.state.named("customer", customer, param="customer")
        if "customer_email" in call.params:
            raise invalid("Give customer or customer_email, not both.", param="customer_email")


def check_url(call: Call, name: str) -> None:
    if name in call.params and not re.match(r"https?://[^\s/]+\S*$", call.params[name]):
        raise invalid(
            f"Not a valid URL: {name} is an https:// or http:// address.", param=name, code="url_invalid"
        )


def new_session(call: Call, *, expires_at: int, items: list[Json]) -> Json:
    state = call.state
    total = sum(item["amount_total"] for item in items)
    currency = items[0]["currency"] if items else call.get("currency")
    allowed = call.get("allowed_payment_method_types")
    types = payment_intents.types_of(currency or "eur", allowed)
    if not types:
        raise invalid(
            "None of the allowed payment method types can be used.", param="allowed_payment_method_types"
        )
    session = state.new(
        "checkout.session",
        "cs_live" if state.live else "cs_test",
        amount_subtotal=total if items else None,
        amount_total=total if items else None,
        automatic_tax={"enabled": False, "liability": None, "provider": None, "status": None},
        currency=currency,
        custom_fields=[],
        custom_text={"after_submit": None, "shipping_address": None, "submit": None}
        | {"terms_of_service_acceptance": None},
        customer_creation=call.get("customer_creation") or (None if call.get("customer") else "if_required"),
        expires_at=expires_at,
        metadata=merged({}, call.get("metadata")),
        mode=call.params["mode"],
        payment_method_types=types,
        payment_status="unpaid" if items else "no_payment_required",
        shipping_options=[],
        status="open",
        total_details={"amount_discount": 0, "amount_shipping": 0, "amount_tax": 0} if items else None,
        ui_mode="hosted_page",
        **call.fields(
            "success_url", "cancel_url", "customer", "customer_email", "client_reference_id", "locale", "submit_type",
            "allowed_payment_method_types",
        ),
    )  # fmt: skip
    if options := call.get("saved_payment_method_options"):
        if not call.get("customer"):
            raise invalid("A payment method is saved with a customer.", param="saved_payment_method_options")
        session["saved_payment_method_options"] = SAVED | options
    session["url"] = f"{state.base}/c/pay/{session['id']}"
    data = call.get("payment_intent_data") or {}
    state.hidden(session["id"]).update(line_items=items, payment_intent_data=data)
    return session


def lines(call: Call) -> list[Json]:
    """The items with their sums; refused where they cannot be charged."""
    entries = call.get("line_items") or []
    if call.params["mode"] == "setup":
        if entries:
            raise invalid("line_items is for mode payment only.", param="line_items")
        if "payment_intent_data" in call.params:
            raise invalid("payment_intent_data is for mode payment only.", param="payment_intent_data")
        if not (call.get("currency") or call.get("allowed_payment_method_types")):
            raise invalid(
                "Mode setup needs currency, unless allowed_payment_method_types is given.",
                param="currency",
                code="parameter_missing",
            )
        return []
    if not entries:
        raise invalid("Missing required param: line_items.", param="line_items", code="parameter_missing")
    if "setup_intent_data" in call.params:
        raise invalid("setup_intent_data is for mode setup only.", param="setup_intent_data")
    if unknown := set(call.get("payment_intent_data") or {}) - PAYMENT_DATA:
        raise not_modelled(
            f"payment_intent_data[{min(unknown)}]", param=f"payment_intent_data[{min(unknown)}]"
        )
    items = [line(call.state, item, number) for number, item in enumerate(entries)]
    if len({item["currency"] for item in items}) > 1:
        raise invalid("All line items have to have the same currency.", param="line_items")
    currencies.check(sum(item["amount_total"] for item in items), items[0]["currency"], param="line_items")
    return items


def line(state: State, item: Json, number: int) -> Json:
    at = f"line_items[{number}]"
    price: Any = item.get("price_data")
    if price is None:
        raise not_modelled("prices that are stored at Stripe; give price_data", param=f"{at}[price]")
    if "product_data" not in price or "unit_amount" not in price:
        raise invalid(f"{at}[price_data] needs product_data and unit_amount.", param=f"{at}[price_data]")
    quantity = item.get("quantity", 0)
    if quantity < 1:
        raise invalid(
            f"Missing required param: {at}[quantity].", param=f"{at}[quantity]", code="parameter_missing"
        )
    currencies.check_currency(price["currency"], param=f"{at}[price_data][currency]")
    amount = price["unit_amount"] * quantity
    return {
        "id": state.new_id("li"),
        "object": "item",
        "amount_discount": 0,
        "amount_subtotal": amount,
        "amount_tax": 0,
        "amount_total": amount,
        "currency": price["currency"],
        "description": price["product_data"]["name"],
        "metadata": {},
        "price": None,
        "quantity": quantity,
    }


retrieve = listing.named("checkout.session", param="session")


def update(call: Call) -> Json:
    session = retrieve(call)
    session["metadata"] = merged(session["metadata"], call.params.get("metadata"))
    return session


def line_items(call: Call) -> Json:
    session = retrieve(call)
    items = list(reversed(call.state.hidden(session["id"])["line_items"]))
    return listing.page(call, items, url=f"/v1/checkout/sessions/{session['id']}/line_items")


def expire(call: Call) -> Json:
    session = retrieve(call)
    if session["status"] != "open":
        raise not_open(session)
    return paying.expire_session(call.state, session)


def not_open(session: Json) -> ApiError:
    return invalid(
        f'Only Checkout Sessions with a status in ["open"] can be expired. This Checkout Session has a status of '
        f"{session['status']}.",
        param="session",
    )


list_ = listing.listed("checkout.session", "customer", "payment_intent", "status")
