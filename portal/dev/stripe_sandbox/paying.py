"""What a person does on a Checkout page, and what becomes of its session."""

from __future__ import annotations

from portal.dev.stripe_sandbox import confirming, customers, payment_intents, setup_intents
from portal.dev.stripe_sandbox.errors import Json
from portal.dev.stripe_sandbox.requests import merged
from portal.dev.stripe_sandbox.state import State


def pay(state: State, session: Json, method: Json, *, person: Json, save: bool = False) -> Json:
    """Submit the page with that method: the intent afterwards. Raises the 402 of a decline; it stays open then.

    `save`: the person ticked that it is kept, which the page offers where its session says so.
    """
    state.hidden(session["id"])["person"] = person
    back = f"{state.base}/c/pay/{session['id']}"
    if session["mode"] == "setup":
        intent = state.get("setup_intent", session["setup_intent"])
        setup_intents.confirm(state, intent, method, return_url=back)
    else:
        intent = intent_of(state, session)
        options = session["saved_payment_method_options"] or {}
        state.hidden(intent["id"])["save"] = save and options.get("payment_method_save") == "enabled"
        payment_intents.refuse_type(intent["payment_method_types"], method)
        confirming.confirm(state, intent, method, off_session=False, return_url=back)
    follow(state, intent)
    return intent


def intent_of(state: State, session: Json) -> Json:
    """The payment intent of a session is made when somebody first tries to pay."""
    if session["payment_intent"]:
        return state.get("payment_intent", session["payment_intent"])
    intent_data = state.hidden(session["id"])["payment_intent_data"]
    fields = {name: intent_data[name] for name in intent_data if name != "metadata"}
    intent = payment_intents.make(
        state,
        amount=session["amount_total"],
        currency=session["currency"],
        customer=session["customer"],
        metadata=merged({}, intent_data.get("metadata")),
        **fields,
    )
    state.hidden(intent["id"])["session"] = session["id"]
    session["payment_intent"] = intent["id"]
    return intent


def authenticate(state: State, intent: Json, *, passed: bool) -> None:
    """The bank's page was answered, for an intent of a session or any other."""
    if intent["status"] != "requires_action":
        return
    about = setup_intents if intent["object"] == "setup_intent" else confirming
    try:
        about.authenticated(state, intent, passed=passed)
    finally:
        follow(state, intent)


def follow(state: State, intent: Json) -> None:
    """Bring the session of an intent to where the intent is now."""
    session = state.find("checkout.session", state.hidden(intent["id"]).get("session"))
    if session is None:
        return
    if session["status"] == "open" and intent["status"] in {"succeeded", "processing"}:
        complete(state, session, paid=intent["status"] == "succeeded")
    elif session["status"] == "complete" and session["payment_status"] == "unpaid":
        if intent["status"] == "succeeded":
            session["payment_status"] = "paid"
            state.emit("checkout.session.async_payment_succeeded", session)
        elif intent["status"] == "requires_payment_method":
            state.emit("checkout.session.async_payment_failed", session)


def complete(state: State, session: Json, *, paid: bool) -> None:
    state.never("session_expires", session["id"])
    person = state.hidden(session["id"]).get("person") or {}
    defaults = {"address": None, "business_name": None, "email": None, "individual_name": None, "name": None}
    session["customer_details"] = defaults | {"phone": None, "tax_exempt": "none", "tax_ids": []} | {
        name: person.get(name) for name in ("email", "name")
    }  # fmt: skip
    session |= {"status": "complete", "url": None}
    if session["customer_creation"] == "always":
        session["customer"] = customers.make(state, email=person.get("email"), name=person.get("name"))["id"]
    if session["mode"] == "payment":
        session["payment_status"] = "paid" if paid else "unpaid"
    state.emit("checkout.session.completed", session)


def expire_session(state: State, session: Json) -> Json:
    """Nobody can pay by it any more, and nothing that was begun on it goes on."""
    state.never("session_expires", session["id"])
    session |= {"status": "expired", "url": None}
    if session["payment_intent"]:
        intent = state.get("payment_intent", session["payment_intent"])
        if intent["status"] in payment_intents.CANCELABLE:
            payment_intents.cancel_intent(state, intent, reason="expired")
    state.emit("checkout.session.expired", session)
    return session


def session_expires(state: State, identifier: str) -> None:
    session = state.get("checkout.session", identifier)
    if session["status"] == "open":
        expire_session(state, session)
