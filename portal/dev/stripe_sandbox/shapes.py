"""What objects look like, as the classes of the installed stripe package say."""

from __future__ import annotations

from functools import cache
from typing import Any, ForwardRef, Union, get_args, get_origin

import stripe

from portal.dev.stripe_sandbox.errors import Json

VERSION = stripe.api_version  # the one that the installed package is pinned to

CLASSES: dict[str, Any] = {
    "account": stripe.Account,
    "balance": stripe.Balance,
    "balance_transaction": stripe.BalanceTransaction,
    "charge": stripe.Charge,
    "checkout.session": stripe.checkout.Session,
    "customer": stripe.Customer,
    "dispute": stripe.Dispute,
    "event": stripe.Event,
    "payment_intent": stripe.PaymentIntent,
    "payment_method": stripe.PaymentMethod,
    "payout": stripe.Payout,
    "refund": stripe.Refund,
    "setup_intent": stripe.SetupIntent,
    "webhook_endpoint": stripe.WebhookEndpoint,
}
# Absent rather than null: what only some objects have, or only where it is asked for.
ABSENT = {
    "deleted", "secret", "account", "context", "source", "sources", "subscriptions", "tax_ids", "tax", "line_items",
    "refunds", "level3", "radar_options", "cash_balance", "invoice_credit_balance", "latest_attempt",
}  # fmt: skip


def optional(annotation: Any) -> bool:
    return get_origin(annotation) is Union and type(None) in get_args(annotation)


@cache
def _nullable(kind: str) -> tuple[str, ...]:
    hints = CLASSES[kind].__annotations__
    return tuple(name for name, hint in hints.items() if optional(hint) and name not in ABSENT)


def blank(kind: str) -> Json:
    """An object of that kind with null for all that may be null."""
    return {"object": kind, **dict.fromkeys(_nullable(kind))}


@cache
def expandable(kind: str) -> frozenset[str]:
    """The fields that are an id until they are expanded into the object."""
    hints = CLASSES[kind].__annotations__ if kind in CLASSES else {}
    return frozenset(name for name, hint in hints.items() if _either_id_or_object(hint))


def _either_id_or_object(hint: Any) -> bool:
    if get_origin(hint) is not Union:
        return False
    parts = get_args(hint)
    return str in parts and any(isinstance(part, ForwardRef) for part in parts)
