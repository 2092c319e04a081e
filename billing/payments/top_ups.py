"""Buying credit for a wallet: on a hosted page, or with the saved card. It is credited when its money has come.

Each is asked for under a key of its own, so that a form that is sent twice buys once.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID, uuid4

from django.db import transaction

from billing.catalog.tenant_lock import lock
from billing.models import (
    AttemptState,
    CheckoutSession,
    CheckoutState,
    MethodState,
    PaymentAttempt,
    SavedMethod,
    TopUp,
    Wallet,
)
from billing.payments import charge_attempts, checkout_sessions, customers
from billing.payments.charge_attempts import NotChargeableError
from billing.payments.checkout_sessions import ReturnUrls
from billing.payments.gateway_access import CollectionError
from billing.payments.gateways.base import Gateway
from billing.rules.money import TOKENS
from billing.wallets import entries

MOST_CHARGES: Final = 60
"""Top-ups that people of a tenant have charged to cards within an hour."""


def open_page(
    *, wallet: Wallet, amount: int, key: UUID, gateway: Gateway, back: ReturnUrls, who: str, moment: datetime
) -> CheckoutSession:
    """An open page on which `amount` is paid for the wallet; under the same key the same page.

    Raises CollectionError where nothing can be paid there, GatewayError where no page can be had now.
    """
    customers.refuse_archived(wallet.tenant)
    customer = customers.get_customer(wallet.tenant, gateway=gateway, moment=moment)
    checkout = _prepare_page(wallet, amount, key, customer, back, who, moment)
    if checkout.state in {CheckoutState.COMPLETE, CheckoutState.EXPIRED}:
        raise CollectionError("top-up-page-used")
    return (
        checkout
        if checkout.state == CheckoutState.OPEN
        else checkout_sessions.open_session(checkout, gateway, moment)
    )


def charge_top_up(
    *, wallet: Wallet, amount: int, key: UUID, gateway: Gateway, back: ReturnUrls, who: str, moment: datetime
) -> PaymentAttempt:
    """Charge `amount` to the saved card; under the same key the same attempt, sent once. Its bank may ask for a
    confirmation: then `on_demand.confirmation_page` leads there.

    Raises CollectionError where nothing can be charged, GatewayError where the outcome is not known yet.
    """
    customers.refuse_archived(wallet.tenant)
    customer = customers.get_customer(wallet.tenant, gateway=gateway, moment=moment)
    attempt = _prepare_charge(wallet, amount, key, customer, back, who, moment)
    if attempt.state != AttemptState.OFFERED:
        charge_attempts.follow_attempt(attempt=attempt, gateway=gateway, moment=moment)
    attempt.refresh_from_db()
    return attempt


def gateway_amount(amount: int, currency: str) -> int:
    """The gateway's amount. CollectionError where that much cannot be charged exactly."""
    if currency == TOKENS:
        raise CollectionError("top-up-of-tokens")
    amounts = charge_attempts.chargeable_amount(amount, currency)
    if isinstance(amounts, NotChargeableError):
        raise CollectionError("top-up-bounds")
    if amounts[1]:
        raise CollectionError("top-up-digits")
    return amounts[0]


def make_attempt(
    top_up: TopUp,
    customer: str,
    method: SavedMethod,
    moment: datetime,
    *,
    who: str = "",
    back: ReturnUrls | None = None,
) -> PaymentAttempt:
    """An attempt to be sent; with `back`, while `who` is there. For a caller that holds the wallet's row."""
    attempt = PaymentAttempt(
        tenant_id=top_up.tenant_id,
        top_up=top_up,
        amount=top_up.amount,
        currency=top_up.wallet.unit,
        method=method,
        created_at=moment,
        requested_by=who,
    )
    description = f"Top-up of the wallet {top_up.wallet}"
    params = charge_attempts.charge_params(
        attempt, gateway_amount(top_up.amount, top_up.wallet.unit), customer, method, description
    )
    attempt.params = charge_attempts.on_session_params(params, method, back.completed) if back else params
    attempt.save(force_insert=True)
    return attempt


@transaction.atomic
def _prepare_charge(
    wallet: Wallet, amount: int, key: UUID, customer: str, back: ReturnUrls, who: str, moment: datetime
) -> PaymentAttempt:
    customers.refuse_archived(lock(wallet.tenant))  # who may have left since the gateway was asked
    row = entries.locked([wallet.pk])[wallet.pk]
    top_up, is_new = _get_or_create(row, amount, key, who, moment)
    if not is_new:
        existing = top_up.attempts.order_by("-created_at").first()
        if existing is None:
            raise TypeError("a top-up is committed with its attempt")
        return existing
    _refuse_too_many(row, moment)
    method = SavedMethod.objects.filter(tenant=row.tenant, preferred=True, state=MethodState.USABLE).first()
    if method is None:
        raise CollectionError("top-up-no-card")
    return make_attempt(top_up, customer, method, moment, who=who, back=back)


@transaction.atomic
def _prepare_page(
    wallet: Wallet, amount: int, key: UUID, customer: str, back: ReturnUrls, who: str, moment: datetime
) -> CheckoutSession:
    customers.refuse_archived(lock(wallet.tenant))  # who may have left since the gateway was asked
    row = entries.locked([wallet.pk])[wallet.pk]
    top_up, is_new = _get_or_create(row, amount, key, who, moment)
    if not is_new:
        existing = CheckoutSession.objects.filter(attempt__top_up=top_up).first()
        if existing is None:
            raise CollectionError("top-up-charged")
        return existing
    checkout_sessions.refuse_too_many(row.tenant, moment)
    cents = gateway_amount(amount, row.unit)
    attempt = PaymentAttempt(
        pk=uuid4(), tenant=row.tenant, top_up=top_up, amount=amount, currency=row.unit, state=AttemptState.OFFERED,
        created_at=moment,
    )  # fmt: skip
    checkout = CheckoutSession(tenant=row.tenant, attempt=attempt, created_at=moment, requested_by=who)
    tags = charge_attempts.charge_tags(attempt)
    name = f"Top-up of the wallet {row}"
    checkout.params = checkout_sessions.session_params(
        customer, back, tags | {"ct_checkout": str(checkout.pk)}
    ) | {
        "mode": "payment",
        "allowed_payment_method_types": ["card", *(["sepa_debit"] if row.unit == "EUR" else [])],
        "client_reference_id": str(attempt.pk),
        "line_items": [
            {
                "quantity": 1,
                "price_data": {
                    "currency": row.unit.lower(),
                    "unit_amount": cents,
                    "product_data": {"name": name},
                },
            }
        ],
        "payment_intent_data": {"description": name, "metadata": tags},
    }
    attempt.save(force_insert=True)
    checkout.save(force_insert=True)
    return checkout


def _get_or_create(row: Wallet, amount: int, key: UUID, who: str, moment: datetime) -> tuple[TopUp, bool]:
    """The one of that key, and whether it was made now."""
    gateway_amount(amount, row.unit)
    top_up, is_new = TopUp.objects.get_or_create(
        pk=key,
        defaults={
            "tenant_id": row.tenant_id,
            "wallet": row,
            "amount": amount,
            "created_at": moment,
            "requested_by": who,
        },
    )
    if (top_up.wallet_id, top_up.amount) != (row.pk, amount):
        raise CollectionError("form-of-another-amount")
    return top_up, is_new


def _refuse_too_many(row: Wallet, moment: datetime) -> None:
    """Each charge is calls that all tenants share, and may be one more try at somebody's card."""
    card_attempts = PaymentAttempt.objects.filter(
        top_up__crossing=None, checkout=None, top_up__tenant=row.tenant_id
    )
    tried = card_attempts.filter(created_at__gt=moment - timedelta(hours=1)).count()
    if tried >= MOST_CHARGES:
        raise CollectionError("too-many-top-ups", count=tried)


def parse_key(text: str) -> UUID:
    """The key that a form carries. CollectionError for a text that is none."""
    try:
        return UUID(text)
    except ValueError as error:
        raise CollectionError("form-without-key") from error
