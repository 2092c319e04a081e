"""An invoice's page says of each payment how its money came, or went."""

from __future__ import annotations

import re

import pytest

from billing.models import PaymentAttempt
from billing.receivables import settlement
from billing.rules.money import Money
from portal.core.tenants.models import Role
from tests import builders
from tests.collecting import Scenario, a_scenario
from tests.web.house import page

pytestmark = pytest.mark.django_db(transaction=True)


def payments(scenario: Scenario) -> list[str]:
    """How each moved, and what it came to, as Ann reads it."""
    ann = builders.a_person("ann@vision.example", scenario.lab, Role.OWNER)
    text = page(ann, "/t/vision-lab/invoices/INV-2026-0001/").partition('id="payments-title"')[2]
    rows = re.findall(
        r"text-secondary\">([^<·]+)(?: ·[^<]*)?</span></span><strong>([^<]+)<", text.partition("</ul>")[0]
    )
    return [" ".join(word.strip() for word in words) for words in rows]


def test_by_card_and_given_back_by_hand_at_stripe(scenario: Scenario) -> None:
    scenario.save_card()
    scenario.collect()
    scenario.stripe.dashboard.refund(PaymentAttempt.objects.get().external_id or "", 150)
    scenario.collect()
    assert payments(scenario) == ["Visa ending in 4242 $4.00", "Given back -$1.50"]
    assert "$1.50" in page(builders.an_operator(), "/admin/billing/paymentrefund/")


def test_charged_back_and_then_paid_by_transfer(scenario: Scenario) -> None:
    scenario.save_card()
    scenario.collect()
    dispute = scenario.stripe.dashboard.dispute(PaymentAttempt.objects.get().external_id or "")
    scenario.stripe.dashboard.lose_dispute(dispute)
    scenario.collect()
    settlement.record_payment(
        invoice=scenario.invoice,
        amount=Money.of("4.00", "USD"),
        received_on=scenario.now.date(),
        reference="vision lab, March",
        recorded_by="Stripe",
    )
    assert payments(scenario) == ["Visa ending in 4242 $4.00", "Charged back -$4.00", "Bank transfer $4.00"]
    assert "$4.00" in page(builders.an_operator(), "/admin/billing/paymentdispute/")


def test_by_debit_of_a_bank_account() -> None:
    with a_scenario(currency="EUR") as scenario:
        scenario.save_account()
        scenario.collect()
        scenario.wait(days=7)
        scenario.collect()
        assert payments(scenario) == ["Bank account ending in 3000 €4.00"]
