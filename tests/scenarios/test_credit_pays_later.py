"""Credit that could not pay an invoice when it came pays it as soon as it can, before a card is charged for it."""

from __future__ import annotations

from datetime import date

import pytest
from django.db import transaction

from billing.catalog.tenant_lock import lock
from billing.dunning import dunning_run
from billing.models import Notice
from billing.payments import chargeable_invoices, checkout_sessions
from billing.payments.gateways.base import GatewayError
from billing.receivables import credit_balance, pauses, settlement
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from tests import stories
from tests.builders import a_job, ingest
from tests.collecting import Scenario

pytestmark = pytest.mark.django_db(transaction=True)

BACK = checkout_sessions.ReturnUrls(
    completed="https://bills.example/back/", canceled="https://bills.example/invoice/"
)


def comes(scenario: Scenario, amount: int) -> None:
    """A transfer that names no invoice becomes credit, which pays what it can at once."""
    with transaction.atomic():
        lock(scenario.lab)
        credit_balance.receive_credit(
            tenant=scenario.lab, currency="USD", amount=amount, memo="Transfer", by="op", at=scenario.now
        )
        credit_balance.use_credit(
            tenant=scenario.lab, currency="USD", at=scenario.now, on=scenario.now.date()
        )


def left(scenario: Scenario) -> tuple[str, int]:
    """What is due of the invoice, and the tenant's credit."""
    stand = settlement.load_balance(invoice=scenario.invoice, on=scenario.now.date())
    return stand.due.text, credit_balance.get_balance(scenario.lab, "USD")


def test_credit_that_came_while_a_page_was_open_pays_when_the_page_has_ended_and_no_card_is_charged(
    scenario: Scenario,
) -> None:
    scenario.save_card()
    checkout_sessions.open_payment_page(
        invoice=scenario.invoice, gateway=scenario.gateway, back=BACK, who="ann", moment=scenario.now
    )
    comes(scenario, 1000)
    assert left(scenario) == ("4.00", 1000)  # Ann may be paying on the page
    scenario.collect()
    assert left(scenario) == ("4.00", 1000)
    scenario.wait(days=2)  # the page is open for a day
    for _ in range(3):
        scenario.collect()
    assert (left(scenario), scenario.charged) == (("0.00", 600), [])
    scenario.books_agree()


def test_no_letter_is_written_for_what_credit_can_pay(scenario: Scenario) -> None:
    Tenant.objects.update(email="bills@vision.example")
    with transaction.atomic():
        lock(scenario.lab)
        credit_balance.receive_credit(
            tenant=scenario.lab, currency="USD", amount=500, memo="Transfer", by="op", at=scenario.now
        )
    assert dunning_run.run_dunning(moment=scenario.now).late == 0
    assert not Notice.objects.exclude(kind="receipt").exists()
    assert left(scenario) == ("0.00", 100)


def test_an_invoice_that_rests_is_paid_from_credit_when_it_goes_on(scenario: Scenario) -> None:
    scenario.save_card()
    pauses.pause_dunning(
        tenant=scenario.lab,
        invoice=scenario.invoice,
        until=date(2026, 4, 25),
        reason="the lab asks",
        by="op",
        moment=scenario.now,
    )
    comes(scenario, 150)
    scenario.collect()
    assert left(scenario) == ("4.00", 150)
    scenario.wait(days=5)
    scenario.collect()
    assert (left(scenario), scenario.charged) == (("0.00", 0), [250])
    scenario.books_agree()


def test_an_invoice_that_is_issued_while_all_of_its_tenant_rests_waits_for_it_to_go_on(
    scenario: Scenario,
) -> None:
    pauses.pause_dunning(
        tenant=scenario.lab,
        invoice=None,
        until=None,
        reason="charge nothing yet",
        by="op",
        moment=scenario.now,
    )
    comes(scenario, 1000)
    assert left(scenario) == ("4.00", 1000)
    ingest(
        Cluster.objects.get(),
        a_job(account="vision", started="2026-04-02 10:00", ended="2026-04-02 14:00"),
        as_of="2026-05-01",
    )
    stories.close("2026-04", scenario.lab, on="2026-05-01")
    april = stories.invoice_of(scenario.lab, "2026-04")
    assert april.total == 800
    scenario.wait(days=12)
    scenario.collect()
    assert settlement.load_balance(invoice=april, on=scenario.now.date()).due.text == "8.00"
    assert left(scenario) == ("4.00", 1000)
    pauses.resume_dunning(tenant=scenario.lab, invoice=None, by="op", moment=scenario.now)
    scenario.collect()  # 4.00 for March, the rest of it for April
    assert settlement.load_balance(invoice=april, on=scenario.now.date()).due.text == "2.00"
    assert left(scenario) == ("0.00", 0)


def test_nobody_is_charged_while_credit_is_there(scenario: Scenario) -> None:
    scenario.save_card()
    assert len(chargeable_invoices.list_chargeable(moment=scenario.now, limit=9)) == 1
    with transaction.atomic():
        lock(scenario.lab)
        credit_balance.receive_credit(
            tenant=scenario.lab, currency="USD", amount=1, memo="Transfer", by="op", at=scenario.now
        )
    assert chargeable_invoices.list_chargeable(moment=scenario.now, limit=9) == []


def test_credit_that_came_before_a_charge_was_sent_takes_its_place(scenario: Scenario) -> None:
    """Stripe refuses the key for a night; meanwhile Ann pays by transfer."""
    scenario.save_card()
    scenario.stripe.faults.unauthorized()
    with pytest.raises(GatewayError):
        scenario.charge()
    comes(scenario, 1000)
    scenario.wait(hours=10)
    scenario.stripe.faults.lift()
    scenario.collect()
    assert (scenario.states, scenario.charged, left(scenario)) == (["canceled"], [], ("0.00", 600))
    scenario.books_agree()
