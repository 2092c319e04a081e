"""Credit that could not pay an invoice when it came pays it as soon as it can, before a card is charged for it."""

from __future__ import annotations

from datetime import date

import pytest
from django.db import transaction

from billing.catalog.tenant_lock import lock
from billing.dunning import dunning_run
from billing.models import Letter
from billing.payments import chargeable_invoices, checkout_sessions
from billing.payments.gateways.base import GatewayError
from billing.receivables import credit_balance, pauses, settlement
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from tests import stories
from tests.builders import a_job, take_in
from tests.collecting import Counter

pytestmark = pytest.mark.django_db(transaction=True)

BACK = checkout_sessions.Back(done="https://bills.example/back/", stopped="https://bills.example/invoice/")


def comes(counter: Counter, amount: int) -> None:
    """A transfer that names no invoice becomes credit, which pays what it can at once."""
    with transaction.atomic():
        lock(counter.lab)
        credit_balance.receive(
            tenant=counter.lab, currency="USD", amount=amount, memo="Transfer", by="op", at=counter.now
        )
        credit_balance.use(tenant=counter.lab, currency="USD", at=counter.now, on=counter.now.date())


def left(counter: Counter) -> tuple[str, int]:
    """What is due of the invoice, and the tenant's credit."""
    stand = settlement.balance(invoice=counter.invoice, on=counter.now.date())
    return stand.due.text, credit_balance.of(counter.lab, "USD")


def test_credit_that_came_while_a_page_was_open_pays_when_the_page_has_ended_and_no_card_is_charged(
    counter: Counter,
) -> None:
    counter.save_card()
    checkout_sessions.pay_page(
        invoice=counter.invoice, gateway=counter.gateway, back=BACK, who="ann", moment=counter.now
    )
    comes(counter, 1000)
    assert left(counter) == ("4.00", 1000)  # Ann may be paying on the page
    counter.collect()
    assert left(counter) == ("4.00", 1000)
    counter.wait(days=2)  # the page is open for a day
    for _ in range(3):
        counter.collect()
    assert (left(counter), counter.taken) == (("0.00", 600), [])
    counter.books_agree()


def test_no_letter_is_written_for_what_credit_can_pay(counter: Counter) -> None:
    Tenant.objects.update(email="bills@vision.example")
    with transaction.atomic():
        lock(counter.lab)
        credit_balance.receive(
            tenant=counter.lab, currency="USD", amount=500, memo="Transfer", by="op", at=counter.now
        )
    assert dunning_run.run(moment=counter.now).late == 0
    assert not Letter.objects.exclude(kind="receipt").exists()
    assert left(counter) == ("0.00", 100)


def test_an_invoice_that_rests_is_paid_from_credit_when_it_goes_on(counter: Counter) -> None:
    counter.save_card()
    pauses.pause(
        tenant=counter.lab,
        invoice=counter.invoice,
        until=date(2026, 4, 25),
        why="the lab asks",
        by="op",
        moment=counter.now,
    )
    comes(counter, 150)
    counter.collect()
    assert left(counter) == ("4.00", 150)
    counter.wait(days=5)
    counter.collect()
    assert (left(counter), counter.taken) == (("0.00", 0), [250])
    counter.books_agree()


def test_an_invoice_that_is_issued_while_all_of_its_tenant_rests_waits_for_it_to_go_on(
    counter: Counter,
) -> None:
    pauses.pause(
        tenant=counter.lab, invoice=None, until=None, why="charge nothing yet", by="op", moment=counter.now
    )
    comes(counter, 1000)
    assert left(counter) == ("4.00", 1000)
    take_in(
        Cluster.objects.get(),
        a_job(account="vision", started="2026-04-02 10:00", ended="2026-04-02 14:00"),
        as_of="2026-05-01",
    )
    stories.close("2026-04", counter.lab, on="2026-05-01")
    april = stories.invoice_of(counter.lab, "2026-04")
    assert april.total == 800
    counter.wait(days=12)
    counter.collect()
    assert settlement.balance(invoice=april, on=counter.now.date()).due.text == "8.00"
    assert left(counter) == ("4.00", 1000)
    pauses.resume(tenant=counter.lab, invoice=None, by="op", moment=counter.now)
    counter.collect()  # 4.00 for March, the rest of it for April
    assert settlement.balance(invoice=april, on=counter.now.date()).due.text == "2.00"
    assert left(counter) == ("0.00", 0)


def test_nobody_is_charged_while_credit_is_there(counter: Counter) -> None:
    counter.save_card()
    assert len(chargeable_invoices.invoices(moment=counter.now, limit=9)) == 1
    with transaction.atomic():
        lock(counter.lab)
        credit_balance.receive(
            tenant=counter.lab, currency="USD", amount=1, memo="Transfer", by="op", at=counter.now
        )
    assert chargeable_invoices.invoices(moment=counter.now, limit=9) == []


def test_credit_that_came_before_a_charge_was_sent_takes_its_place(counter: Counter) -> None:
    """Stripe refuses the key for a night; meanwhile Ann pays by transfer."""
    counter.save_card()
    counter.stripe.faults.unauthorized()
    with pytest.raises(GatewayError):
        counter.charge()
    comes(counter, 1000)
    counter.wait(hours=10)
    counter.stripe.faults.lift()
    counter.collect()
    assert (counter.states, counter.taken, left(counter)) == (["canceled"], [], ("0.00", 600))
    counter.books_agree()
