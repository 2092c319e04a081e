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
)
from portal.dev.stripe_sandbox.declining import described, refused
from portal.dev.stripe_sandbox.errors import ApiError, Json
from portal.dev.stripe_sandbox.payment_methods import attach_to, behaviour
from portal.dev.stripe_sandbox.state import World

NOT_AUTHENTICATED = Decline(
    "payment_intent_authentication_failure",
    "authentication_not_handled",
    "The provided payment method has failed authentication. Provide another one to try again.",
)


def asks(world: World, card: TestCard, method: Json, *, off_session: bool) -> bool:
    """Whether the bank wants to see the card's owner now."""
    if card.authentication == "unless_set_up":
        return not (off_session and world.hidden(method["id"])["set_up"])
    if card.authentication == "on_session":
        return not off_session
    return card.authentication == "always"


def confirm(
    world: World,
    intent: Json,
    method: Json,
    *,
    off_session: bool,
    return_url: str | None = None,
    refuse_action: bool = False,
) -> None:
    """Take the money, ask the owner, or raise the 402 of a decline; all of it is announced."""
    intent |= {"payment_method": method["id"], "last_payment_error": None, "next_action": None}
    world.hidden(intent["id"])["return_url"] = return_url
    known = behaviour(world, method)
    if isinstance(known, TestAccount):
        debit(world, intent, method, known)
    elif asks(world, known, method, off_session=off_session):
        if off_session or refuse_action:
            raise decline(world, intent, method, AUTHENTICATION_REQUIRED)
        ask(world, intent)
    else:
        take(world, intent, method)


def ask(world: World, intent: Json) -> None:
    """Send the owner to the bank's page."""
    url = f"{world.base}/authenticate/{intent['id']}"
    back = world.hidden(intent["id"]).get("return_url")
    kind = "redirect_to_url" if back else "use_stripe_sdk"
    told = {"return_url": back, "url": url} if back else {"type": "three_d_secure_redirect", "stripe_js": url}
    intent |= {"status": "requires_action", "next_action": {"type": kind, kind: told}}
    world.emit("payment_intent.requires_action", intent)


def authenticated(world: World, intent: Json, *, passed: bool) -> None:
    """The owner came back from the bank; raises the 402 where the card is declined after all."""
    method = world.get("payment_method", intent["payment_method"])
    intent["next_action"] = None
    if not passed:
        give_up(world, intent, described(NOT_AUTHENTICATED, method=method))
        return
    world.hidden(intent["id"])["authenticated"] = True
    take(world, intent, method)


def take(world: World, intent: Json, method: Json) -> None:
    known = behaviour(world, method)
    if expired(world, method):
        raise decline(world, intent, method, EXPIRED)
    if isinstance(known, TestCard) and known.decline is not None:
        raise decline(world, intent, method, known.decline)
    charge = charges.try_(world, intent, method, status="succeeded")
    succeed(world, intent, method, charge)


def expired(world: World, method: Json) -> bool:
    """Whether the month on the card is over."""
    today = world.clock.moment()
    card = method.get("card")
    return card is not None and (card["exp_year"], card["exp_month"]) < (today.year, today.month)


def succeed(world: World, intent: Json, method: Json, charge: Json) -> None:
    intent |= {"status": "succeeded", "amount_received": intent["amount"], "processing": None}
    world.hidden(method["id"])["used"] = True
    keep(world, intent, method)
    charges.settle(world, charge)
    world.emit("payment_intent.succeeded", intent)


def keep(world: World, intent: Json, method: Json) -> None:
    """Save the method with the customer where the intent, or the person on the page, said so."""
    wanted = intent["setup_future_usage"] or world.hidden(intent["id"]).get("save")
    if wanted and intent["customer"]:
        if world.hidden(intent["id"]).get("save"):
            method["allow_redisplay"] = "always"
        attach_to(world, method, intent["customer"])
        if world.hidden(intent["id"]).get("authenticated"):
            world.hidden(method["id"])["set_up"] = True


def decline(world: World, intent: Json, method: Json, why: Decline) -> ApiError:
    charge = charges.try_(world, intent, method, status="failed")
    charges.fail(world, charge, why)
    give_up(world, intent, described(why, method=method, charge=charge))
    return refused(why, method=method, charge=charge, intent=intent)


def give_up(world: World, intent: Json, error: Json) -> None:
    intent |= {"status": "requires_payment_method", "payment_method": None, "next_action": None}
    intent |= {"last_payment_error": error, "processing": None}
    world.emit("payment_intent.payment_failed", intent)


def debit(world: World, intent: Json, method: Json, account: TestAccount) -> None:
    """Under way until the clock gets to the account's day."""
    charge = charges.try_(world, intent, method, status="pending")
    intent |= {"status": "processing"}
    keep(world, intent, method)
    world.emit("charge.pending", charge)
    world.emit("payment_intent.processing", intent)
    world.later(world.now() + account.seconds, "debit_ends", intent["id"])


def debit_ends(world: World, intent: Json, *, settles: bool | None = None) -> None:
    """The bank paid or refused; `settles` overrides what the test account does. Once over, nothing happens."""
    world.never("debit_ends", intent["id"])
    if intent["status"] != "processing":
        return
    method = world.get("payment_method", intent["payment_method"])
    charge = world.get("charge", intent["latest_charge"])
    known = behaviour(world, method)
    if settles is None:
        settles = isinstance(known, TestAccount) and known.settles
    if settles:
        succeed(world, intent, method, charge)
    else:
        charges.fail(world, charge, DEBIT_FAILED)
        give_up(world, intent, described(DEBIT_FAILED, method=method, charge=charge))
