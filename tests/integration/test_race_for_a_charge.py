"""Two workers collect the same invoice at once: one attempt, one charge; and a page is never open beside one."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from billing.models import IN_FLIGHT, Invoice, Payment, PaymentAttempt
from billing.payments import charge_attempts, checkout_sessions
from billing.payments.charge_attempts import NotChargeableError
from billing.payments.gateway_access import CollectionError
from billing.payments.gateways.base import GatewayError
from tests.collecting import Scenario, a_scenario, more_labs
from tests.integration.operators import Operator
from tests.integration.test_race_for_the_same_rows import at_once

pytestmark = pytest.mark.usefixtures("transactional_db")

LABS = [f"lab-{number:02d}" for number in range(1, 25)]
BACK = checkout_sessions.ReturnUrls(
    completed="https://bills.example/back/", canceled="https://bills.example/invoice/"
)


def charge(scenario: Scenario, invoice: Invoice) -> str:
    """As a worker does that has found the invoice to be due; what came of it."""
    try:
        attempt = charge_attempts.charge_invoice(
            invoice=invoice, gateway=scenario.gateway, moment=scenario.now, on=scenario.now.date()
        )
    except GatewayError as error:
        return str(error.outcome)  # the other one is at it, and its key is in use
    return "held" if isinstance(attempt, NotChargeableError) else str(attempt.pk)


def open_page(scenario: Scenario, invoice: Invoice) -> str:
    try:
        page = checkout_sessions.open_payment_page(
            invoice=invoice,
            gateway=scenario.gateway,
            back=BACK,
            who="ann@vision.example",
            moment=scenario.now,
        )
    except (CollectionError, GatewayError) as error:
        return type(error).__name__
    return str(page.pk)


def assert_charged_once(scenario: Scenario) -> None:
    intent_numbers = [intent["metadata"]["ct_number"] for intent in scenario.stripe.objects("payment_intent")]
    numbers = Invoice.objects.filter(tenant__slug__in=LABS).values_list("number", flat=True)
    assert sorted(intent_numbers) == sorted(str(number) for number in numbers)
    assert Payment.objects.count() == len(LABS)
    assert set(PaymentAttempt.objects.values_list("state", flat=True)) == {"succeeded"}
    assert scenario.stripe.violations == []


def test_collecting_case_9_two_connections_that_charge_one_invoice_make_one_attempt_and_one_charge() -> None:
    dice = random.Random(9)
    with a_scenario() as scenario:
        more_labs(scenario, LABS)
        for invoice in Invoice.objects.filter(tenant__slug__in=LABS).select_related("tenant"):
            if dice.random() < 0.5:
                scenario.stripe.faults.delay(dice.uniform(0, 0.05), "POST /v1/payment_intents")
            results = at_once(*[partial(charge, scenario, invoice)] * 3)
            assert PaymentAttempt.objects.filter(invoice=invoice).count() == 1, results
        scenario.collect()
        assert_charged_once(scenario)


def test_collecting_case_9_two_workers_that_go_round_at_once_charge_each_invoice_once(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_scenario() as scenario:
        more_labs(scenario, LABS)
        for name, value in (
            ("STRIPE_SECRET_KEY", scenario.stripe.key),
            ("STRIPE_API_BASE", scenario.stripe.url),
            ("STRIPE_MODE", "test"),
        ):
            monkeypatch.setenv(name, value)
        with Operator(database_url) as one, Operator(database_url) as other:
            for _ in range(3):
                one.begins("collect")
                other.begins("collect")
                assert (one.ends(), other.ends()) == (0, 0)
        assert_charged_once(scenario)


def test_collecting_case_24_a_page_and_a_charge_that_meet_leave_one_of_them(settings: Any) -> None:
    del settings
    with a_scenario() as scenario:
        more_labs(scenario, LABS[:12])
        for invoice in Invoice.objects.filter(tenant__slug__in=LABS).select_related("tenant"):
            at_once(*[partial(act, scenario, invoice) for act in (charge, open_page)])
            charged = PaymentAttempt.objects.filter(
                invoice=invoice, state__in=(*IN_FLIGHT, "succeeded")
            ).count()
            sessions = [
                session
                for session in scenario.stripe.objects("checkout.session")
                if session["metadata"]["ct_number"] == invoice.number and session["status"] == "open"
            ]
            assert charged + len(sessions) == 1
        assert scenario.stripe.violations == []
