"""What a person does on a Checkout page, and what becomes of its session."""

from __future__ import annotations

from portal.dev.stripe_sandbox import confirming, customers, payment_intents, setup_intents
from portal.dev.stripe_sandbox.calls import merged
from portal.dev.stripe_sandbox.errors import Json
from portal.dev.stripe_sandbox.state import World


def pay(world: World, session: Json, method: Json, *, person: Json, save: bool = False) -> Json:
    """Submit the page with that method: the intent afterwards. Raises the 402 of a decline; it stays open then.

    `save`: the person ticked that it is kept, which the page offers where its session says so.
    """
    world.hidden(session["id"])["person"] = person
    back = f"{world.base}/c/pay/{session['id']}"
    if session["mode"] == "setup":
        intent = world.get("setup_intent", session["setup_intent"])
        setup_intents.confirm(world, intent, method, return_url=back)
    else:
        intent = intent_of(world, session)
        options = session["saved_payment_method_options"] or {}
        world.hidden(intent["id"])["save"] = save and options.get("payment_method_save") == "enabled"
        payment_intents.refuse_type(intent["payment_method_types"], method)
        confirming.confirm(world, intent, method, off_session=False, return_url=back)
    follow(world, intent)
    return intent


def intent_of(world: World, session: Json) -> Json:
    """The payment intent of a session is made when somebody first tries to pay."""
    if session["payment_intent"]:
        return world.get("payment_intent", session["payment_intent"])
    intent_data = world.hidden(session["id"])["payment_intent_data"]
    fields = {name: intent_data[name] for name in intent_data if name != "metadata"}
    intent = payment_intents.make(
        world,
        amount=session["amount_total"],
        currency=session["currency"],
        customer=session["customer"],
        metadata=merged({}, intent_data.get("metadata")),
        **fields,
    )
    world.hidden(intent["id"])["session"] = session["id"]
    session["payment_intent"] = intent["id"]
    return intent


def authenticate(world: World, intent: Json, *, passed: bool) -> None:
    """The bank's page was answered, for an intent of a session or any other."""
    if intent["status"] != "requires_action":
        return
    about = setup_intents if intent["object"] == "setup_intent" else confirming
    try:
        about.authenticated(world, intent, passed=passed)
    finally:
        follow(world, intent)


def follow(world: World, intent: Json) -> None:
    """Bring the session of an intent to where the intent is now."""
    session = world.find("checkout.session", world.hidden(intent["id"]).get("session"))
    if session is None:
        return
    if session["status"] == "open" and intent["status"] in {"succeeded", "processing"}:
        complete(world, session, paid=intent["status"] == "succeeded")
    elif session["status"] == "complete" and session["payment_status"] == "unpaid":
        if intent["status"] == "succeeded":
            session["payment_status"] = "paid"
            world.emit("checkout.session.async_payment_succeeded", session)
        elif intent["status"] == "requires_payment_method":
            world.emit("checkout.session.async_payment_failed", session)


def complete(world: World, session: Json, *, paid: bool) -> None:
    world.never("session_expires", session["id"])
    person = world.hidden(session["id"]).get("person") or {}
    defaults = {"address": None, "business_name": None, "email": None, "individual_name": None, "name": None}
    session["customer_details"] = defaults | {"phone": None, "tax_exempt": "none", "tax_ids": []} | {
        name: person.get(name) for name in ("email", "name")
    }  # fmt: skip
    session |= {"status": "complete", "url": None}
    if session["customer_creation"] == "always":
        session["customer"] = customers.make(world, email=person.get("email"), name=person.get("name"))["id"]
    if session["mode"] == "payment":
        session["payment_status"] = "paid" if paid else "unpaid"
    world.emit("checkout.session.completed", session)


def expire_session(world: World, session: Json) -> Json:
    """Nobody can pay by it any more, and nothing that was begun on it goes on."""
    world.never("session_expires", session["id"])
    session |= {"status": "expired", "url": None}
    if session["payment_intent"]:
        intent = world.get("payment_intent", session["payment_intent"])
        if intent["status"] in payment_intents.CANCELABLE:
            payment_intents.cancel_intent(world, intent, reason="expired")
    world.emit("checkout.session.expired", session)
    return session


def session_expires(world: World, identifier: str) -> None:
    session = world.get("checkout.session", identifier)
    if session["status"] == "open":
        expire_session(world, session)
