"""What is due and too little to be charged: it waits, and nobody hears of it."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import mail

from billing.dunning import dunning_run, overdue_invoices, send
from billing.invoicing import credit_notes
from billing.models import BillingAccount, Letter
from billing.payments.attempts import Held
from billing.rules.money import Money
from portal.core.outbox import outbox
from portal.core.tenants.models import Tenant
from tests.builders import at
from tests.collecting import a_counter

pytestmark = pytest.mark.django_db(transaction=True)


def test_case_052_what_is_below_the_smallest_charge_waits_and_nobody_is_dunned_for_it(settings: Any) -> None:
    """Of 4.00 a credit note leaves 0.48: for sixty days Stripe is asked for none of it, and nothing is said."""
    settings.CLUSTERTAB_SENDS_MAIL = True
    with a_counter(now=at("2026-04-15 09:00")) as counter:
        Tenant.objects.update(email="bills@vision.example")
        card = counter.save_card()
        on = counter.now.date()
        net = Money.of("3.52", "USD")
        credit_notes.credit(invoice=counter.invoice, reason="Slow.", by="op", on=on, net=net)
        request_count = len(counter.stripe.requests)
        for _ in range(60):
            counter.wait(days=1)
            assert counter.collect().charged == 0
            outbox.drain()
            dunning_run.run(moment=counter.now)
            send.post(moment=counter.now)

        assert (counter.states, counter.taken, counter.paid) == ([], [], "0.00")
        sent = [str(one) for one in counter.stripe.requests[request_count:] if one.method == "POST"]
        customer = BillingAccount.objects.get().customer
        assert sent == [f"POST /v1/customers/{customer}"]  # its e-mail, and nothing of money
        assert counter.charge() == Held(
            "What is due is below the smallest amount that can be charged; it waits for a transfer."
        )
        assert [str(each.subject)[:11] for each in mail.outbox] == ["Credit note"]
        assert not Letter.objects.exclude(kind="credit-note").exists()
        (late,) = overdue_invoices.late(moment=counter.now)
        assert late.rests.startswith("What is left is below the smallest amount that can be charged")
        card.refresh_from_db()
        assert card.state == "usable"
        counter.books_agree()
