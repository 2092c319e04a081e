"""Customers."""

from __future__ import annotations

from portal.dev.stripe_sandbox import listing, payment_intents, payment_methods
from portal.dev.stripe_sandbox.calls import Call, merged
from portal.dev.stripe_sandbox.errors import Json, missing
from portal.dev.stripe_sandbox.state import World

PLAIN = ("description", "email", "name", "business_name", "individual_name", "phone", "shipping", "address")
TAKES = (*PLAIN, "metadata", "preferred_locales", "tax_exempt", "invoice_settings")


def make(world: World, **fields: object) -> Json:
    invoices: Json = dict.fromkeys(("custom_fields", "default_payment_method", "footer", "rendering_options"))
    usual: Json = {"metadata": {}, "preferred_locales": [], "tax_exempt": "none"}
    customer = world.new(
        "customer",
        "cus",
        balance=0,
        delinquent=False,
        invoice_prefix=world.new_id("x")[2:10].upper(),
        invoice_settings=invoices,
        next_invoice_sequence=1,
        **(usual | fields),
    )
    world.emit("customer.created", customer)
    return customer


def create(call: Call) -> Json:
    world = call.world
    payment_intents.check_email(call, "email")
    preferred = (call.get("invoice_settings") or {}).get("default_payment_method")
    if preferred and preferred != call.get("payment_method"):
        raise missing("PaymentMethod", preferred, param="invoice_settings[default_payment_method]")
    method = None
    if told := call.get("payment_method"):
        method = payment_methods.usable(world, told, customer=None)
        payment_methods.refuse_unsavable(world, method)
    customer = make(
        world,
        metadata=merged({}, call.get("metadata")),
        preferred_locales=call.get("preferred_locales") or [],
        tax_exempt=call.get("tax_exempt") or "none",
        **call.given(*PLAIN),
    )
    if method is not None:
        payment_methods.attach_to(world, method, customer["id"])
        if preferred:
            customer["invoice_settings"]["default_payment_method"] = method["id"]
    return customer


def retrieve(call: Call) -> Json:
    return call.world.named("customer", call.ids[0], param="id", in_path=True)


def update(call: Call) -> Json:
    world = call.world
    customer = living(call)
    payment_intents.check_email(call, "email")
    with world.updating(customer, "customer.updated"):
        customer |= call.given(*PLAIN, "preferred_locales", "tax_exempt")
        customer["metadata"] = merged(customer["metadata"], call.params.get("metadata"))
        if told := call.get("invoice_settings"):
            prefer(world, customer, told)
    return customer


def prefer(world: World, customer: Json, told: Json) -> None:
    """The card that Stripe's own invoices would use; it has to be this customer's."""
    chosen = told.get("default_payment_method") or None
    if chosen:
        payment_methods.usable(world, chosen, customer=customer["id"], param="invoice_settings")
    customer["invoice_settings"] = {**customer["invoice_settings"], "default_payment_method": chosen}


def delete(call: Call) -> Json:
    """Gone but for its id; its cards are detached and can never be charged again."""
    return remove(call.world, living(call))


def living(call: Call) -> Json:
    """The customer of the path, unless it was deleted."""
    customer = call.world.find("customer", call.ids[0])
    if customer is None or customer.get("deleted"):
        raise missing("customer", call.ids[0], param="id", status=404)
    return customer


def remove(world: World, customer: Json) -> Json:
    world.emit("customer.deleted", customer)
    for method in world.all("payment_method"):
        if method["customer"] == customer["id"]:
            payment_methods.detach_from(world, method)
    identifier = customer["id"]
    customer.clear()
    customer |= {"id": identifier, "object": "customer", "deleted": True}
    return customer


def list_(call: Call) -> Json:
    return listing.page(call, call.world.all("customer"), url="/v1/customers", equal=["email"])
