"""The 402 of a card that is declined."""

from __future__ import annotations

import copy

from portal.dev.stripe_sandbox.cards import Decline
from portal.dev.stripe_sandbox.errors import ApiError, Json


def described(decline: Decline, *, method: Json, charge: Json | None = None) -> Json:
    """What stands in `last_payment_error`, `last_setup_error` and in the answer alike."""
    error: Json = {
        "type": "card_error",
        "code": decline.code,
        "decline_code": decline.decline_code,
        "doc_url": f"https://stripe.com/docs/error-codes/{decline.code.replace('_', '-')}",
        "message": decline.message,
        "network_decline_code": decline.network_code,
        "payment_method": copy.deepcopy(method),
    }
    if decline.advice_code:
        error["advice_code"] = decline.advice_code
    if charge is not None:
        error["charge"] = charge["id"]
    return error


def refused(
    decline: Decline, *, method: Json, charge: Json | None = None, intent: Json | None = None
) -> ApiError:
    """The answer, with the intent as it is after the decline."""
    error = described(decline, method=method, charge=charge)
    if intent is not None:
        error[intent["object"]] = copy.deepcopy(intent)
    return ApiError(402, error)
