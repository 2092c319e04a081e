"""What is due and too little to be charged: it waits, and nobody hears of it."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import mail

from billing.dunning import dunning_run, overdue_invoices
from billing.emails import delivery
from billing.invoicing import credit_notes
from billing.models import BillingAccount, Notice
from billing.rules.money import Money
from portal.core.outbox import outbox
from portal.core.tenants.models import Tenant
from tests.builders import at
from tests.collecting import a_scenario
from tests.tiers import strides

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.swept
def test_case_052_what_is_below_the_smallest_charge_waits_and_nobody_is_dunned_for_it(settings: Any) -> None:
    """Of 4.00 a credit note leaves 0.48: for sixty days Stripe is asked for none of it, and nothing is said."""
    settings.CLUSTERTAB_SENDS_MAIL = True
    with a_scenario(now=at("2026-04-15 09:00")) as scenario:
        Tenant.objects.update(email="bills@vision.example")
        card = scenario.save_card()
        on = scenario.now.date()
        net = Money.of("3.52", "USD")
        credit_notes.issue_credit_note(invoice=scenario.invoice, reason="Slow.", by="op", on=on, net=net)
        request_count = len(scenario.stripe.requests)
        for stride in strides(60):
            scenario.wait(days=stride)
            assert scenario.collect().charged == 0
            outbox.drain()
            dunning_run.run_dunning(moment=scenario.now)
            delivery.send_notices(moment=scenario.now)

        assert (scenario.states, scenario.charged, scenario.paid) == ([], [], "0.00")
        sent = [str(one) for one in scenario.stripe.requests[request_count:] if one.method == "POST"]
        customer = BillingAccount.objects.get().customer
        assert sent == [f"POST /v1/customers/{customer}"]  # its e-mail, and nothing of money
        assert str(scenario.charge()) == (
            "What is due is below the smallest amount that can be charged; it waits for a transfer."
        )
        assert [str(message.subject)[:11] for message in mail.outbox] == ["Credit note"]
        assert not Notice.objects.exclude(kind="credit-note").exists()
        (late,) = overdue_invoices.list_overdue(moment=scenario.now)
        assert late.pause_reason.startswith("The amount due is below the smallest amount that can be charged")
        card.refresh_from_db()
        assert card.state == "usable"
        scenario.books_agree()
