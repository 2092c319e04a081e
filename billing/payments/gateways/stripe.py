"""Stripe: PaymentIntents off session, hosted Checkout, refunds, disputes, events. The only importer of `stripe`.

The library's own retries are off and each call that changes something carries a key of ours: its
keys are random, and forgotten when the process dies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import stripe
from stripe import StripeClient

from billing.payments.gateways import stripe_values as values
from billing.payments.gateways.base import (
    CallOutcome,
    Charge,
    Dispute,
    Event,
    GatewayError,
    Method,
    Movement,
    Params,
    Payout,
    Refund,
    Session,
    SignatureError,
)

VERSION: Final = "2026-10-28.endive"
TIMEOUT: Final = 20  # seconds; the library would wait 80
PAGE: Final = 100
TOLERANCE: Final = 300  # seconds that a notification may be old

_EXPANDED: Final = ["latest_charge.balance_transaction"]
EVENT_TYPES: Final = (
    "payment_intent.succeeded", "payment_intent.payment_failed", "payment_intent.processing",
    "payment_intent.canceled", "payment_intent.requires_action", "checkout.session.completed",
    "checkout.session.expired", "checkout.session.async_payment_succeeded",
    "checkout.session.async_payment_failed", "refund.created", "refund.updated", "refund.failed",
    "charge.dispute.created", "charge.dispute.updated", "charge.dispute.closed",
    "charge.dispute.funds_reinstated", "setup_intent.succeeded", "payment_method.detached",
    "payment_method.automatically_updated", "customer.deleted", "payout.paid",
)  # fmt: skip
"""The types of events that are asked for, and subscribed to."""

RIGHT: Final = re.compile(r"'rak_(\w+)_(read|write)'")
"""What Stripe says that a restricted key lacks."""

T = TypeVar("T")


class Stripe:
    """One Stripe account, by one key. `base` is where its API is, if not at Stripe."""

    def __init__(self, *, key: str, base: str = "") -> None:
        self.live = key.startswith(("sk_live_", "rk_live_"))
        self._client = StripeClient(
            key,
            stripe_version=VERSION,
            base_addresses={"api": base} if base else None,
            max_network_retries=0,
            http_client=stripe.RequestsClient(timeout=TIMEOUT),
        ).v1

    def missing_rights(self, *, key: str) -> Sequence[str]:
        """What the key may not do and has to, in words; nothing is changed by asking.

        Reading is tried. Writing is tried on objects that do not exist: who may write is told that, who may not is
        refused before. Raises GatewayError where the key itself is refused, or nothing can be told.
        """
        return [right for right, ask in self._rights(key).items() if _is_refused(ask)]

    def _rights(self, key: str) -> dict[str, Callable[[], object]]:
        of, one, none = self._client, _typed_params({"limit": 1}), "none_such"

        def keyed(right: str) -> Any:
            return _key_options(f"{key}:{right}")

        return {
            "Balance: read": of.balance.retrieve,
            "Balance transactions: read": lambda: of.balance_transactions.list(one),
            "Payouts: read": lambda: of.payouts.list(one),
            "Events: read": lambda: of.events.list(one),
            "Disputes: read": lambda: of.disputes.list(one),
            "Customers: write": lambda: of.customers.update(f"cus_{none}", {}, keyed("customers")),
            "PaymentMethods: write": lambda: of.payment_methods.detach(f"pm_{none}", {}, keyed("methods")),
            "PaymentIntents: write": lambda: of.payment_intents.cancel(f"pi_{none}", {}, keyed("intents")),
            "SetupIntents: write": lambda: of.setup_intents.cancel(f"seti_{none}", {}, keyed("setups")),
            "Checkout Sessions: write": lambda: of.checkout.sessions.expire(
                f"cs_{none}", {}, keyed("sessions")
            ),
            "Charges and Refunds: write": lambda: of.refunds.update(f"re_{none}", {}, keyed("refunds")),
        }

    def create_customer(self, params: Params, *, key: str) -> str:
        return _call(lambda: self._client.customers.create(_typed_params(params), _key_options(key))).id

    def update_customer(self, customer: str, params: Params, *, key: str) -> None:
        _call(lambda: self._client.customers.update(customer, _typed_params(params), _key_options(key)))

    def customer_exists(self, customer: str) -> bool:
        try:
            answer = _plain_object(_call(lambda: self._client.customers.retrieve(customer)))
        except GatewayError as error:
            if error.code == "resource_missing":
                return False
            raise
        return not answer.get("deleted")

    def customers(self, *, since: int) -> Iterator[tuple[str, Mapping[str, str]]]:
        for customer in _list_all(self._client.customers.list, {"created": {"gte": since}}):
            yield customer["id"], customer.get("metadata") or {}

    def methods(self, customer: str) -> Sequence[Method]:
        objects = _list_all(self._client.payment_methods.list, {"customer": customer})
        return [values.method(stripe_method) for stripe_method in objects]

    def find_method(self, method: str) -> Method:
        return values.method(_plain_object(_call(lambda: self._client.payment_methods.retrieve(method))))

    def detach(self, method: str, *, key: str) -> None:
        _call(lambda: self._client.payment_methods.detach(method, {}, _key_options(key)))

    def charge(self, params: Params, *, key: str) -> Charge:
        """A refusal by the bank is an answer: a charge that failed or needs its owner."""
        typed_params = _typed_params(params | {"expand": _EXPANDED})
        try:
            answer = _call(lambda: self._client.payment_intents.create(typed_params, _key_options(key)))
        except _DeclinedError as declined:
            return values.charge(declined.intent)
        return values.charge(_plain_object(answer))

    def find_charge(self, charge: str) -> Charge:
        typed_params = _typed_params({"expand": _EXPANDED})
        return values.charge(
            _plain_object(_call(lambda: self._client.payment_intents.retrieve(charge, typed_params)))
        )

    def cancel_charge(self, charge: str, *, key: str) -> Charge:
        """Give up a charge that nobody has confirmed."""
        return values.charge(
            _plain_object(_call(lambda: self._client.payment_intents.cancel(charge, {}, _key_options(key))))
        )

    def charges(self, *, since: int, until: int | None = None, customer: str = "") -> Iterator[Charge]:
        """Newest first, of both seconds and between them."""
        time_range = {"gte": since} | ({"lte": until} if until is not None else {})
        params: Params = {"created": time_range, "expand": [f"data.{item}" for item in _EXPANDED]}
        if customer:
            params["customer"] = customer
        for item in _list_all(self._client.payment_intents.list, params):
            yield values.charge(item)

    def open_session(self, params: Params, *, key: str) -> Session:
        answer = _call(
            lambda: self._client.checkout.sessions.create(_typed_params(params), _key_options(key))
        )
        return values.session(_plain_object(answer))

    def find_session(self, session: str) -> Session:
        typed_params = _typed_params({"expand": ["setup_intent", "payment_intent"]})
        return values.session(
            _plain_object(_call(lambda: self._client.checkout.sessions.retrieve(session, typed_params)))
        )

    def sessions(self, *, since: int, customer: str = "") -> Iterator[Session]:
        params: Params = {"created": {"gte": since}}
        if customer:
            params["customer"] = customer
        for stripe_session in _list_all(self._client.checkout.sessions.list, params):
            yield values.session(stripe_session)

    def expire_session(self, session: str, *, key: str) -> Session:
        done = _call(lambda: self._client.checkout.sessions.expire(session, {}, _key_options(key)))
        return values.session(_plain_object(done))

    def refund(self, params: Params, *, key: str) -> Refund:
        return values.refund(
            _plain_object(
                _call(lambda: self._client.refunds.create(_typed_params(params), _key_options(key)))
            )
        )

    def find_refund(self, refund: str) -> Refund:
        return values.refund(_plain_object(_call(lambda: self._client.refunds.retrieve(refund))))

    def refunds(self, *, since: int, charge: str = "") -> Iterator[Refund]:
        params: Params = {"created": {"gte": since}}
        if charge:
            params["payment_intent"] = charge
        for stripe_refund in _list_all(self._client.refunds.list, params):
            yield values.refund(stripe_refund)

    def find_dispute(self, dispute: str) -> Dispute:
        return values.dispute(_plain_object(_call(lambda: self._client.disputes.retrieve(dispute))))

    def disputes(self, *, since: int) -> Iterator[Dispute]:
        for stripe_dispute in _list_all(self._client.disputes.list, {"created": {"gte": since}}):
            yield values.dispute(stripe_dispute)

    def events(self, *, since: int, undelivered: bool = False) -> Iterator[Event]:
        """Newest first, of the types in `HEARD`; Stripe keeps them for 30 days."""
        params: Params = {"created": {"gte": since}}
        if undelivered:
            params["delivery_success"] = False
        for stripe_event in _list_all(self._client.events.list, params):
            if stripe_event["type"] in EVENT_TYPES:
                yield values.event(stripe_event)

    def verified(self, payload: bytes, signature: str, secrets: Sequence[str]) -> Event:
        """What a notification says, if one of the secrets signed it; several are valid while one is replaced."""
        for secret in secrets if signature.isascii() else ():
            try:
                stripe.WebhookSignature.verify_header(payload.decode(), signature, secret, TOLERANCE)
            except (stripe.SignatureVerificationError, UnicodeDecodeError):
                continue
            return values.event(_load_json(payload))
        raise SignatureError("The notification is signed by no secret of ours, or was signed too long ago.")

    def payouts(self, *, since: int) -> Iterator[Payout]:
        for stripe_payout in _list_all(self._client.payouts.list, {"created": {"gte": since}}):
            yield values.payout(stripe_payout)

    def movements(self, *, since: int = 0, payout: str = "") -> Iterator[Movement]:
        params: Params = {"payout": payout} if payout else {"created": {"gte": since}}
        params["expand"] = ["data.source"]
        for transaction in _list_all(self._client.balance_transactions.list, params):
            yield values.movement(transaction)


class _ForbiddenError(GatewayError):
    """The key is accepted, and may not do this."""


class _DeclinedError(Exception):
    """The bank refused; the PaymentIntent came with the refusal."""

    def __init__(self, intent: values.Object) -> None:
        super().__init__()
        self.intent = intent


def _call(call: Callable[[], T]) -> T:
    """The answer; GatewayError says what may have happened where there is none."""
    try:
        return call()
    except stripe.CardError as error:
        body: Any = error.json_body or {}
        intent = (body.get("error") or {}).get("payment_intent")
        if intent:
            raise _DeclinedError(intent) from None
        raise GatewayError(_describe_error(error), CallOutcome.REFUSED, code=error.code or "") from None
    except stripe.PermissionError as error:
        raise _ForbiddenError(_describe_error(error), CallOutcome.LOCKED_OUT) from None
    except stripe.StripeError as error:
        details = {name: getattr(error, name, "") or "" for name in ("code", "param")}
        raise GatewayError(
            _describe_error(error), _call_outcome(error), code=details["code"], about=details["param"]
        ) from None


def _is_refused(ask: Callable[[], object]) -> bool:
    """Whether the key has no right to it; that it names nothing means that it has."""
    try:
        _call(ask)
    except _ForbiddenError:
        return True
    except GatewayError as error:
        if error.outcome is not CallOutcome.REFUSED:
            raise
    return False


def _call_outcome(error: stripe.StripeError) -> CallOutcome:
    status = error.http_status
    if isinstance(error, stripe.AuthenticationError | stripe.PermissionError):
        return CallOutcome.LOCKED_OUT
    if isinstance(error, stripe.RateLimitError) or status in {409, 429}:
        return CallOutcome.RETRYABLE
    if isinstance(error, stripe.IdempotencyError):
        return CallOutcome.UNREPEATABLE  # a call with this key arrived before, and may have done something
    if isinstance(error, stripe.InvalidRequestError):
        return CallOutcome.REFUSED
    if status is not None and status >= 500 and _is_stripe_answer(error):
        return CallOutcome.UNREPEATABLE  # replayed for as long as the key lives
    return CallOutcome.UNKNOWN


def _is_stripe_answer(error: stripe.StripeError) -> bool:
    """Whether Stripe itself answered: something in between may have, or half of the answer is missing."""
    body: Any = error.json_body
    return isinstance(body, dict) and isinstance(body.get("error"), dict)


def _describe_error(error: stripe.StripeError) -> str:
    """In a sentence. Stripe repeats a wrong key, of which it hides most; nothing of it is needed."""
    if isinstance(error, stripe.PermissionError) and (right := RIGHT.search(str(error.user_message or ""))):
        noun, may = right[1].replace("_", " "), right[2]
        return f"The key of Stripe may not {may} {noun}s: docs/how-to/go-live-with-stripe.md lists what it needs."
    if isinstance(error, stripe.AuthenticationError | stripe.PermissionError):
        return "Stripe does not accept the key: set STRIPE_SECRET_KEY to one that may do this."
    if isinstance(error, stripe.APIConnectionError):
        return "Stripe could not be reached, or its answer was lost."
    if error.http_status is not None and not _is_stripe_answer(error):
        return f"Stripe answered with {error.http_status} and nothing that can be read."
    return f"Stripe: {error.user_message or error.code or error.http_status}"


def _list_all(ask: Callable[..., Any], params: Params) -> Iterator[dict[str, Any]]:
    """All objects, newest first, page by page."""
    after: Params = {}
    while True:
        page = _plain_object(_call(partial(ask, _typed_params(params | {"limit": PAGE} | after))))
        yield from page["data"]
        if not page["has_more"]:
            return
        after = {"starting_after": page["data"][-1]["id"]}


def _key_options(key: str) -> Any:
    return {"idempotency_key": key}


def _typed_params(params: Params) -> Any:
    """In canonical order, since a resend has to be the same bytes under the same key, and the database keeps the
    parameters of a row in an order of its own. The tests check each request against the library's own types.
    """
    return _sort_keys(params)


def _sort_keys(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _sort_keys(value[name]) for name in sorted(value)}
    if isinstance(value, list | tuple):
        return [_sort_keys(item) for item in value]
    return value


def _plain_object(answer: Any) -> dict[str, Any]:
    data: dict[str, Any] = answer.to_dict()
    return data


def _load_json(payload: bytes) -> object:
    """Raises ValueError for what is no JSON."""
    try:
        data: object = json.loads(payload)
    except RecursionError as error:
        raise ValueError("brackets within brackets") from error
    return data
