"""What becomes of a payment intent when it is confirmed, authenticated, settled or given up."""

from __future__ import annotations

from portal.dev.stripe_sandbox import charges
from portal.dev.stripe_sandbox.cards import (
    AUTHENTICATION_REQUIRED,
    DEBIT_FAILED,
    EXPIRED,
    Decline,
    TestAccount,
    TestCard,
    described,
    refused,
)
from portal.dev.stripe_sandbox.errors import ApiError, Json
from portal.dev.stripe_sandbox.payment_methods import attach_to, behaviour
from portal.dev.stripe_sandbox.state import State

NOT_AUTHENTICATED = Decline(
    "payment_intent_authentication_failure",
    "authentication_not_handled",
    "The provided payment method has failed authentication. Provide another one to try again.",
)


def asks(state: State, card: TestCard, method: Json, *, off_session: bool) -> bool:
    """Whether the bank wants to see the card's owner now."""
    if card.authentication == "unless_set_up":
        return not (off_session and state.hidden(method["id"])["set_up"])
    if card.authentication == "on_session":
        return not off_session
    return card.authentication == "always"


def confirm(
    state: State,
    intent: Json,
    method: Json,
    *,
    off_session: bool,
    return_url: str | None = None,
    refuse_action: bool = False,
) -> None:
    """Take the money, ask the owner, or raise the 402 of a decline; all of it is announced."""
    intent |= {"payment_method": method["id"], "last_payment_error": None, "next_action": None}
    state.hidden(intent["id"])["return_url"] = return_url
    instrument = behaviour(state, method)
    if isinstance(instrument, TestAccount):
        debit(state, intent, method, instrument)
    elif asks(state, instrument, method, off_session=off_session):
        if off_session or refuse_action:
            raise decline(state, intent, method, AUTHENTICATION_REQUIRED)
        ask(state, intent)
    else:
        take(state, intent, method)


def ask(state: State, intent: Json) -> None:
    """Send the owner to the bank's page."""
    url = f"{state.base}/authenticate/{intent['id']}"
    back = state.hidden(intent["id"]).get("return_url")
    kind = "redirect_to_url" if back else "use_stripe_sdk"
    redirect = (
        {"return_url": back, "url": url} if back else {"type": "three_d_secure_redirect", "stripe_js": url}
    )
    intent |= {"status": "requires_action", "next_action": {"type": kind, kind: redirect}}
    state.emit("payment_intent.requires_action", intent)


def authenticated(state: State, intent: Json, *, passed: bool) -> None:
    """The owner came back from the bank; raises the 402 where the card is declined after all."""
    method = state.get("payment_method", intent["payment_method"])
    intent["next_action"] = None
    if not passed:
        give_up(state, intent, described(NOT_AUTHENTICATED, method=method))
        return
    state.hidden(intent["id"])["authenticated"] = True
    take(state, intent, method)


def take(state: State, intent: Json, method: Json) -> None:
    instrument = behaviour(state, method)
    if expired(state, method):
        raise decline(state, intent, method, EXPIRED)
    if isinstance(instrument, TestCard) and instrument.decline is not None:
        raise decline(state, intent, method, instrument.decline)
    charge = charges.try_(state, intent, method, status="succeeded")
    succeed(state, intent, method, charge)


def expired(state: State, method: Json) -> bool:
    """Whether the month on the card is over."""
    today = state.clock.moment()
    card = method.get("card")
    return card is not None and (card["exp_year"], card["exp_month"]) < (today.year, today.month)


def succeed(state: State, intent: Json, method: Json, charge: Json) -> None:
    intent |= {"status": "succeeded", "amount_received": intent["amount"], "processing": None}
    state.hidden(method["id"])["used"] = True
    keep(state, intent, method)
    charges.settle(state, charge)
    state.emit("payment_intent.succeeded", intent)


def keep(state: State, intent: Json, method: Json) -> None:
    """Save the method with the customer where the intent, or the person on the page, said so."""
    save = intent["setup_future_usage"] or state.hidden(intent["id"]).get("save")
    if save and intent["customer"]:
        if state.hidden(intent["id"]).get("save"):
            method["allow_redisplay"] = "always"
        attach_to(state, method, intent["customer"])
        if state.hidden(intent["id"]).get("authenticated"):
            state.hidden(method["id"])["set_up"] = True


def decline(state: State, intent: Json, method: Json, why: Decline) -> ApiError:
    charge = charges.try_(state, intent, method, status="failed")
    charges.fail(state, charge, why)
    give_up(state, intent, described(why, method=method, charge=charge))
    return refused(why, method=method, charge=charge, intent=intent)


def give_up(state: State, intent: Json, error: Json) -> None:
    intent |= {"status": "requires_payment_method", "payment_method": None, "next_action": None}
    intent |= {"last_payment_error": error, "processing": None}
    state.emit("payment_intent.payment_failed", intent)


def debit(state: State, intent: Json, method: Json, account: TestAccount) -> None:
    """Under way until the clock gets to the account's day."""
    charge = charges.try_(state, intent, method, status="pending")
    intent |= {"status": "processing"}
    keep(state, intent, method)
    state.emit("charge.pending", charge)
    state.emit("payment_intent.processing", intent)
    state.later(state.now() + account.seconds, "debit_ends", intent["id"])


def debit_ends(state: State, intent: Json, *, settles: bool | None = None) -> None:
    """The bank paid or refused; `settles` overrides what the test account does. Once over, nothing happens."""
    state.never("debit_ends", intent["id"])
    if intent["status"] != "processing":
        return
    method = state.get("payment_method", intent["payment_method"])
    charge = state.get("charge", intent["latest_charge"])
    instrument = behaviour(state, method)
    if settles is None:
        settles = isinstance(instrument, TestAccount) and instrument.settles
    if settles:
        succeed(state, intent, method, charge)
    else:
        charges.fail(state, charge, DEBIT_FAILED)
        give_up(state, intent, described(DEBIT_FAILED, method=method, charge=charge))
