"""Every endpoint of the API: its handler, the class that describes its parameters, the right it needs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from portal.dev.stripe_sandbox import (
    balance,
    charges,
    checkout,
    customers,
    disputes,
    endpoints,
    payment_intents,
    payment_methods,
    refunds,
    setup_intents,
)
from portal.dev.stripe_sandbox.requests import Handler

LIST = ("limit", "starting_after", "ending_before", "created")


@dataclass(frozen=True)
class Route:
    method: str
    pattern: str  # {} stands for the id of an object
    described: str  # the class of the stripe package
    handler: Handler
    right: str  # of restricted keys
    takes: tuple[str, ...] = ()  # parameters that the sandbox models; others that Stripe knows are refused
    matcher: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        matcher = re.compile("^" + self.pattern.replace("{}", "([^/]+)") + "$")
        object.__setattr__(self, "matcher", matcher)

    @property
    def permission(self) -> str:
        return f"rak_{self.right}_{'read' if self.method == 'GET' else 'write'}"


def _customers() -> list[Route]:
    one, update = "/v1/customers/{}", tuple(name for name in customers.TAKES)
    listed = (*LIST, "type", "allow_redisplay")
    return [
        Route("POST", "/v1/customers", "CustomerCreateParams", customers.create, "customer", (*update,
              "payment_method")),
        Route("GET", "/v1/customers", "CustomerListParams", customers.list_, "customer", (*LIST, "email")),
        Route("GET", one, "CustomerRetrieveParams", customers.retrieve, "customer"),
        Route("POST", one, "CustomerUpdateParams", customers.update, "customer", update),
        Route("DELETE", one, "CustomerDeleteParams", customers.delete, "customer"),
        Route("GET", f"{one}/payment_methods", "CustomerPaymentMethodListParams",
              payment_methods.list_of_customer, "payment_method", listed),
        Route("GET", f"{one}/payment_methods/{{}}", "CustomerPaymentMethodRetrieveParams",
              payment_methods.retrieve_of_customer, "payment_method"),
    ]  # fmt: skip


def _payment_methods() -> list[Route]:
    base, one, right, about = (
        "/v1/payment_methods",
        "/v1/payment_methods/{}",
        "payment_method",
        payment_methods,
    )
    create = ("type", "card", "sepa_debit", "billing_details", "metadata")
    update = ("metadata", "billing_details", "card", "allow_redisplay")
    return [
        Route("POST", base, "PaymentMethodCreateParams", about.create, right, create),
        Route("GET", base, "PaymentMethodListParams", about.list_, right, (*LIST, "customer", "type",
              "allow_redisplay")),
        Route("GET", one, "PaymentMethodRetrieveParams", about.retrieve, right),
        Route("POST", one, "PaymentMethodUpdateParams", about.update, right, update),
        Route("POST", f"{one}/attach", "PaymentMethodAttachParams", about.attach, right, ("customer",)),
        Route("POST", f"{one}/detach", "PaymentMethodDetachParams", about.detach, right),
    ]  # fmt: skip


def _intents() -> list[Route]:
    base, one, right, pay = "/v1/payment_intents", "/v1/payment_intents/{}", "payment_intent", payment_intents
    routes = [
        Route("POST", base, "PaymentIntentCreateParams", pay.create, right, pay.CREATE),
        Route("GET", base, "PaymentIntentListParams", pay.list_, right, (*LIST, "customer")),
        Route("GET", one, "PaymentIntentRetrieveParams", pay.retrieve, right),
        Route("POST", one, "PaymentIntentUpdateParams", pay.update, right, pay.UPDATE),
        Route("POST", f"{one}/confirm", "PaymentIntentConfirmParams", pay.confirm_, right, pay.CONFIRM),
        Route(
            "POST", f"{one}/cancel", "PaymentIntentCancelParams", pay.cancel, right, ("cancellation_reason",)
        ),
    ]
    base, one, right, save = "/v1/setup_intents", "/v1/setup_intents/{}", "setup_intent", setup_intents
    return [
        *routes,
        Route("POST", base, "SetupIntentCreateParams", save.create, right, save.CREATE),
        Route("GET", base, "SetupIntentListParams", save.list_, right, (*LIST, "customer", "payment_method")),
        Route("GET", one, "SetupIntentRetrieveParams", save.retrieve, right),
        Route("POST", one, "SetupIntentUpdateParams", save.update, right, save.UPDATE),
        Route("POST", f"{one}/confirm", "SetupIntentConfirmParams", save.confirm_, right, save.CONFIRM),
        Route(
            "POST", f"{one}/cancel", "SetupIntentCancelParams", save.cancel, right, ("cancellation_reason",)
        ),
    ]


def _checkout() -> list[Route]:
    base, right = "/v1/checkout/sessions", "checkout_session"
    listed = (*LIST, "customer", "payment_intent", "status")
    return [
        Route("POST", base, "checkout.SessionCreateParams", checkout.create, right, checkout.CREATE),
        Route("GET", base, "checkout.SessionListParams", checkout.list_, right, listed),
        Route("GET", f"{base}/{{}}", "checkout.SessionRetrieveParams", checkout.retrieve, right),
        Route("POST", f"{base}/{{}}", "checkout.SessionUpdateParams", checkout.update, right, ("metadata",)),
        Route("POST", f"{base}/{{}}/expire", "checkout.SessionExpireParams", checkout.expire, right),
        Route("GET", f"{base}/{{}}/line_items", "checkout.SessionLineItemListParams", checkout.line_items,
              right, LIST),
    ]  # fmt: skip


def _charges() -> list[Route]:
    of = (*LIST, "charge", "payment_intent")
    return [
        Route("GET", "/v1/charges", "ChargeListParams", charges.list_, "charge", (*LIST, "customer",
              "payment_intent")),
        Route("GET", "/v1/charges/{}", "ChargeRetrieveParams", charges.retrieve, "charge"),
        Route("POST", "/v1/charges/{}", "ChargeUpdateParams", charges.update, "charge", ("description",
              "metadata", "receipt_email")),
        Route("POST", "/v1/refunds", "RefundCreateParams", refunds.create, "charge", refunds.CREATE),
        Route("GET", "/v1/refunds", "RefundListParams", refunds.list_, "charge", of),
        Route("GET", "/v1/refunds/{}", "RefundRetrieveParams", refunds.retrieve, "charge"),
        Route("POST", "/v1/refunds/{}", "RefundUpdateParams", refunds.update, "charge", ("metadata",)),
        Route("GET", "/v1/disputes", "DisputeListParams", disputes.list_, "dispute", of),
        Route("GET", "/v1/disputes/{}", "DisputeRetrieveParams", disputes.retrieve, "dispute"),
        Route("POST", "/v1/disputes/{}", "DisputeUpdateParams", disputes.update, "dispute", ("evidence",
              "metadata", "submit")),
        Route("POST", "/v1/disputes/{}/close", "DisputeCloseParams", disputes.close, "dispute"),
    ]  # fmt: skip


def _account() -> list[Route]:
    hook, right = "/v1/webhook_endpoints", "webhook"
    create = ("url", "enabled_events", "api_version", "description", "metadata")
    update = ("url", "enabled_events", "description", "metadata", "disabled")
    booked = (*LIST, "payout", "source", "type", "currency")
    paid = (*LIST, "arrival_date", "status", "destination")
    events = (*LIST, "type", "types", "delivery_success")
    return [
        Route("GET", "/v1/account", "AccountRetrieveCurrentParams", endpoints.account, "account"),
        Route("GET", "/v1/balance", "BalanceRetrieveParams", balance.retrieve, "balance"),
        Route("GET", "/v1/balance_transactions", "BalanceTransactionListParams", balance.list_transactions,
              "balance", booked),
        Route("GET", "/v1/balance_transactions/{}", "BalanceTransactionRetrieveParams",
              balance.retrieve_transaction, "balance"),
        Route("GET", "/v1/payouts", "PayoutListParams", balance.list_payouts, "payout", paid),
        Route("GET", "/v1/payouts/{}", "PayoutRetrieveParams", balance.retrieve_payout, "payout"),
        Route("GET", "/v1/events", "EventListParams", endpoints.list_events, "event", events),
        Route("GET", "/v1/events/{}", "EventRetrieveParams", endpoints.retrieve_event, "event"),
        Route("POST", hook, "WebhookEndpointCreateParams", endpoints.create, right, create),
        Route("GET", hook, "WebhookEndpointListParams", endpoints.list_, right, LIST),
        Route("GET", f"{hook}/{{}}", "WebhookEndpointRetrieveParams", endpoints.retrieve, right),
        Route("POST", f"{hook}/{{}}", "WebhookEndpointUpdateParams", endpoints.update, right, update),
        Route("DELETE", f"{hook}/{{}}", "WebhookEndpointDeleteParams", endpoints.delete, right),
    ]  # fmt: skip


ROUTES = [*_customers(), *_payment_methods(), *_intents(), *_checkout(), *_charges(), *_account()]


def match(method: str, path: str) -> tuple[Route, tuple[str, ...]] | None:
    for route in ROUTES:
        if route.method == method and (hit := route.matcher.match(path)):
            return route, tuple(hit.groups())
    return None
