"""What was paid by card: at the sandbox of Stripe, each at its own time, by the same ways as anybody's card.

A demonstration beside a real key, or without any, has none of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from urllib.parse import urlsplit

from django.conf import settings

from billing.models import (
    AutomaticTopUp,
    CheckoutState,
    Invoice,
    PaymentAttempt,
    PaymentDispute,
    SavedMethod,
    Wallet,
)
from billing.payments import (
    automatic,
    checkout_sessions,
    collection_run,
    customers,
    gateway_access,
    saved_methods,
)
from billing.payments.checkout_sessions import ReturnUrls
from portal.dev.stripe_sandbox import Sandbox


@contextmanager
def _sandbox(moment: datetime) -> Iterator[Sandbox]:
    """Stripe as it stood at that moment; its state is the one that the demo goes on with."""
    port = urlsplit(settings.STRIPE_API_BASE).port or 0
    with Sandbox(port=port, home=settings.ENV.home / "sandbox", now=moment) as sandbox:
        yield sandbox


def pay(*, invoice: Invoice, by: str, moment: datetime) -> None:
    """Somebody types a card on the hosted page; paid already, nothing."""
    if PaymentAttempt.objects.filter(invoice=invoice, state="succeeded").exists():
        return
    address = settings.PORTAL_URL or "http://127.0.0.1"
    with _sandbox(moment) as stripe:
        gateway = gateway_access.get_gateway()
        page = checkout_sessions.open_payment_page(
            invoice=invoice, gateway=gateway, back=ReturnUrls(address, address), who=by, moment=moment
        )
        checkout_sessions.follow_session(checkout=page, gateway=gateway, moment=moment)
        page.refresh_from_db()
        if page.state == CheckoutState.OPEN:
            stripe.dashboard.pay(page.external_id or "")
            checkout_sessions.follow_session(checkout=page, gateway=gateway, moment=moment)


def dispute(*, invoice: Invoice, moment: datetime) -> None:
    """The payer's bank takes the payment back; again, nothing."""
    if PaymentDispute.objects.filter(attempt__invoice=invoice).exists():
        return
    paid = PaymentAttempt.objects.get(invoice=invoice, state="succeeded")
    with _sandbox(moment) as stripe:
        if not stripe.objects("dispute"):
            stripe.dashboard.dispute(paid.external_id or "", reason="duplicate")
        collection_run.run_collection(gateway=gateway_access.get_gateway(), clock=lambda: moment)


def top_up(*, wallet: Wallet, rule: AutomaticTopUp, moment: datetime) -> None:
    """The wallet tops itself up if it is used up, from a card that is saved before the first time."""
    with _sandbox(moment) as stripe:
        gateway = gateway_access.get_gateway()
        if not SavedMethod.objects.filter(tenant=wallet.tenant).exists():
            customer = customers.get_customer(wallet.tenant, gateway=gateway, moment=moment)
            card = stripe.dashboard.save_card(customer, set_up=True)
            saved_methods.save_method(tenant=wallet.tenant, method=gateway.find_method(card), moment=moment)
        automatic.fire_rule(rule=rule, gateway=gateway, moment=moment)
