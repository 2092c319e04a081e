"""Paying an invoice with the saved card. No data of a card passes through here."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.urls import reverse
from rest_framework import serializers

from billing.models import AttemptState, CheckoutSession, DocumentKind, InvoiceState, PaymentAttempt
from billing.payments import charge_attempts, gateway_access, on_demand
from billing.payments.checkout_sessions import ReturnUrls
from billing.payments.gateway_access import CollectionError, UnmatchedObjectError
from billing.payments.gateways.base import GatewayError
from portal.api import idempotency
from portal.api.answers import as_json
from portal.api.bodies import Body
from portal.api.fields import MoneyField, minor
from portal.api.problems import ProblemError, bad_request, not_found
from portal.api.resources.invoices import InvoiceEndpoint

SUCCEEDED, PROCESSING, NEEDS_ACTION = "succeeded", "processing", "needs_action"


class CardPayment(Body):
    expected = MoneyField(
        required=False, help_text="What is due as you know it: where more is due by now, nothing is charged."
    )


class AttemptSerializer(serializers.Serializer[PaymentAttempt]):
    """A charge of the saved card."""

    id = serializers.CharField(help_text="Opaque.")
    invoice = serializers.CharField(help_text="Number.")
    state = serializers.ChoiceField(choices=[SUCCEEDED, PROCESSING, NEEDS_ACTION])
    amount = MoneyField()
    confirm_url = serializers.CharField(
        allow_null=True,
        help_text="The bank's page on which its owner confirms the charge; null: none is needed.",
    )


class CardPayments(InvoiceEndpoint):
    """Charge what is due of the invoice to the tenant's saved card. Repeated under its key, it charges once."""

    write_scope = "payments:write"
    serializer = AttemptSerializer
    request_serializer = CardPayment
    needs_idempotency = True
    beside = True
    refusals = (CollectionError,)

    def post(self, request: Any, name: str) -> HttpResponse:
        invoice, values = self.invoice(name), self.body()
        if invoice.kind == DocumentKind.CREDIT_NOTE or invoice.state != InvoiceState.ISSUED:
            raise not_found()
        expected = values.get("expected")
        if expected is not None and expected.currency != invoice.currency:
            raise bad_request(
                f"The invoice is in {invoice.currency}.", ("/expected/currency", "Another one.")
            )
        back = request.build_absolute_uri
        slug = invoice.tenant.slug
        try:
            attempt = on_demand.pay_invoice(
                invoice=invoice,
                key=idempotency.uuid_of(self.client.owner, self.idempotency_key),
                gateway=gateway_access.get_gateway(),
                back=ReturnUrls(
                    completed=back(reverse("payment_back", args=[slug])),
                    canceled=back(reverse("payment_stopped", args=[slug])),
                ),
                who=self.client.name,
                moment=self.moment,
                most=expected.minor if expected is not None else None,
            )
        except (GatewayError, UnmatchedObjectError) as error:
            raise _unanswered(charge_attempts.is_under_way(invoice)) from error
        return as_json(_as_data(attempt, on_demand.confirmation_page(attempt=attempt)), status=201)


def _as_data(attempt: PaymentAttempt, confirmation: CheckoutSession | None) -> dict[str, Any]:
    state = AttemptState(attempt.state)
    if confirmation is None and state in {
        AttemptState.FAILED, AttemptState.CANCELED, AttemptState.NEEDS_ACTION
    }:  # fmt: skip
        detail = attempt.message or "The card was refused, and nothing was charged."
        raise ProblemError(409, "card-refused", "The card was refused", detail)
    states = {AttemptState.SUCCEEDED: SUCCEEDED}
    return {
        "id": f"att_{attempt.pk.hex}",
        "invoice": str(attempt.invoice),
        "state": NEEDS_ACTION if confirmation is not None else states.get(state, PROCESSING),
        "amount": minor(attempt.amount, attempt.currency),
        "confirm_url": confirmation.url if confirmation is not None else None,
    }


def _unanswered(is_under_way: bool) -> ProblemError:
    """Not stored: the same key asks again, and charges nothing twice."""
    detail = (
        "Stripe did not answer, and the charge may have been made: send the same request again under the same key."
        if is_under_way
        else "Stripe did not answer, and nothing was charged: send the same request again."
    )
    return ProblemError(
        503, "gateway-silent", "The payment gateway does not answer", detail, headers={"Retry-After": "30"}
    )
