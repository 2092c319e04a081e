"""Customers."""

from __future__ import annotations

from portal.dev.stripe_sandbox import listing, payment_intents, payment_methods
from portal.dev.stripe_sandbox.errors import Json, missing
from portal.dev.stripe_sandbox.requests import Call, merged
from portal.dev.stripe_sandbox.state import State

PLAIN = ("description", "email", "name", "business_name", "individual_name", "phone", "shipping", "address")
TAKES = (*PLAIN, "metadata", "preferred_locales", "tax_exempt", "invoice_settings")


def make(state: State, **fields: object) -> Json:
    invoices: Json = dict.fromkeys(("custom_fields", "default_payment_method", "footer", "rendering_options"))
    usual: Json = {"metadata": {}, "preferred_locales": [], "tax_exempt": "none"}
    customer = state.new(
        "customer",
        "cus",
        balance=0,
        delinquent=False,
        invoice_prefix=state.new_id("x")[2:10].upper(),
        invoice_settings=invoices,
        next_invoice_sequence=1,
        **(usual | fields),
    )
    state.emit("customer.created", customer)
    return customer


def create(call: Call) -> Json:
    state = call.state
    payment_intents.check_email(call, "email")
    preferred = (call.get("invoice_settings") or {}).get("default_payment_method")
    if preferred and preferred != call.get("payment_method"):
        raise missing("PaymentMethod", preferred, param="invoice_settings[default_payment_method]")
    method = None
    if method_id := call.get("payment_method"):
        method = payment_methods.usable(state, method_id, customer=None)
        payment_methods.refuse_unsavable(state, method)
    customer = make(
        state,
        metadata=merged({}, call.get("metadata")),
        preferred_locales=call.get("preferred_locales") or [],
        tax_exempt=call.get("tax_exempt") or "none",
        **call.fields(*PLAIN),
    )
    if method is not None:
        payment_methods.attach_to(state, method, customer["id"])
        if preferred:
            customer["invoice_settings"]["default_payment_method"] = method["id"]
    return customer


retrieve = listing.named("customer")


def update(call: Call) -> Json:
    state = call.state
    customer = living(call)
    payment_intents.check_email(call, "email")
    with state.updating(customer, "customer.updated"):
        customer |= call.fields(*PLAIN, "preferred_locales", "tax_exempt")
        customer["metadata"] = merged(customer["metadata"], call.params.get("metadata"))
        if settings := call.get("invoice_settings"):
            prefer(state, customer, settings)
    return customer


def prefer(state: State, customer: Json, settings: Json) -> None:
    """The card that Stripe's own invoices would use; it has to be this customer's."""
    chosen = settings.get("default_payment_method") or None
    if chosen:
        payment_methods.usable(state, chosen, customer=customer["id"], param="invoice_settings")
    customer["invoice_settings"] = {**customer["invoice_settings"], "default_payment_method": chosen}


def delete(call: Call) -> Json:
    """Gone but for its id; its cards are detached and can never be charged again."""
    return remove(call.state, living(call))


def living(call: Call) -> Json:
    """The customer of the path, unless it was deleted."""
    customer = call.state.find("customer", call.ids[0])
    if customer is None or customer.get("deleted"):
        raise missing("customer", call.ids[0], param="id", status=404)
    return customer


def remove(state: State, customer: Json) -> Json:
    state.emit("customer.deleted", customer)
    for method in state.all("payment_method"):
        if method["customer"] == customer["id"]:
            payment_methods.detach_from(state, method)
    identifier = customer["id"]
    customer.clear()
    customer |= {"id": identifier, "object": "customer", "deleted": True}
    return customer


list_ = listing.listed("customer", "email")
